"""Tables that an exact search changes, and functions that undo changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from etdev.planner.kernel import Runner, Table, kernel
from etdev.planner.tables import Tables


class State(NamedTuple):
    """Tables that change during a search."""

    low: Table
    """Lowest possible offset of each buffer. For a placed buffer, its offset."""
    placed: Table
    """1 for each placed buffer, otherwise 0."""
    floor: Table
    """For each section, the smallest ``low`` of its unplaced buffers. They cannot be placed below that offset."""
    left: Table
    """For each section, the total height of its unplaced buffers."""
    cut: Table
    """For each section, the number of unplaced buffers that are in use there and in the previous section."""
    weight: Table
    """For each section, 1 plus the number of failed attempts that ended there."""
    stale: Table
    """For each section, the number of the last answer that made its floor outdated."""
    frames: Table
    """Stack of frames. A frame stores one open question of the search; the constants below name its entries."""
    parts: Table
    """Ranges of sections that are searched separately.

    Each range has four entries: begin, end, the next range to search (-1: none), and the frame whose answer created the
    range (-1: none).
    """
    low_trail: Table
    """Two entries for each change of ``low``: the buffer, and its ``low`` before the change."""
    floor_trail: Table
    """Two entries for each change of ``floor``: the section, and its floor before the change."""
    used: Table
    """Counters: the used entries of ``low_trail``, of ``floor_trail`` and of ``parts``, then the steps spent."""


FRAME = 7
SECTION, CHOICE, PART, PARENT, SAVED = range(5)
"""Positions of the entries of a frame.

``SECTION`` is the section of the question, or -1 before its choice. ``CHOICE`` is the last answer: a buffer, -1 before
the first answer, or the number of buffers if no buffer is at the floor. ``PART`` is the range of sections to search.
``PARENT`` is the frame to return to, or -1 if there is none. ``SAVED`` is the first of three entries. They store the
first three entries of ``used`` from before the answer.
"""
LOWS, FLOORS, PARTS, STEPS = range(4)
"""Positions of the counters in :attr:`State.used`."""


def make_state(tables: Tables, runner: Runner) -> State:
    """Return the state before any buffer is placed."""
    count, sections = len(tables.size), len(tables.spare)
    left = [0] * sections
    cut = [0] * sections
    for index in range(count):
        for section in range(tables.first[index], tables.last[index]):
            left[section] += tables.height[index]
            cut[section] += section > tables.first[index]
    low = [max(pin, 0) for pin in tables.pin]
    start, crowd = tables.crowd_start, tables.crowd
    parts: tuple[Sequence[int], ...] = (
        low,
        [0] * count,
        [min(low[crowd[place]] for place in range(start[s], start[s + 1])) for s in range(sections)],
        left,
        cut,
        [1] * sections,
        [0] * sections,
        [0] * (FRAME * (4 * count + 64)),
        [0] * (4 * (2 * count + 64)),
        [0] * (2 * (2 * len(tables.near) + 16 * count + 1024)),
        [0] * (2 * (4 * len(tables.crowd) + 16 * sections + 1024)),
        [0] * 4,
    )
    return State(*(runner.table(table) for table in parts))


@kernel
def undo(tables: Tables, state: State, base: int) -> None:
    """Undo the last answer of a frame."""
    used = state.used
    for entry in range(used[LOWS] - 1, state.frames[base + SAVED] - 1, -1):
        state.low[state.low_trail[2 * entry]] = state.low_trail[2 * entry + 1]
    for entry in range(used[FLOORS] - 1, state.frames[base + SAVED + 1] - 1, -1):
        state.floor[state.floor_trail[2 * entry]] = state.floor_trail[2 * entry + 1]
    for which in range(3):
        used[which] = state.frames[base + SAVED + which]
    index = state.frames[base + CHOICE]
    if index < len(tables.size):
        state.placed[index] = 0
        first, last = tables.first[index], tables.last[index]
        for section in range(first, last):
            state.left[section] += tables.height[index]
            if section > first:
                state.cut[section] += 1


@kernel
def split(state: State, begin: int, end: int, following: int, frame: int) -> int:
    """Split a range of sections at borders that no unplaced buffer crosses. Return the first part; -1 if none."""
    head, before = following, -1
    for section in range(begin + 1, end + 1):
        if section < end and state.cut[section] > 0:
            continue
        # A section without unplaced buffers needs no search.
        if state.left[begin] > 0:
            part = state.used[PARTS]
            state.used[PARTS] = part + 1
            state.parts[4 * part] = begin
            state.parts[4 * part + 1] = section
            state.parts[4 * part + 2] = following
            state.parts[4 * part + 3] = frame
            if before < 0:
                head = part
            else:
                state.parts[4 * before + 2] = part
            before = part
        begin = section
    return head


@kernel
def has_room(tables: Tables, state: State, depth: int) -> bool:
    """Return whether the tables have room for one more answer."""
    count, sections = len(tables.size), len(tables.spare)
    used = state.used
    return (
        FRAME * (depth + 2) <= len(state.frames)
        and 2 * (used[LOWS] + count) <= len(state.low_trail)
        and 2 * (used[FLOORS] + sections) <= len(state.floor_trail)
        and 4 * used[PARTS] + 4 * count <= len(state.parts)
    )


@kernel
def open_frame(state: State, depth: int, part: int, parent: int) -> None:
    """Open the frame of the next question."""
    base = FRAME * depth
    state.frames[base + SECTION] = -1
    state.frames[base + CHOICE] = -1
    state.frames[base + PART] = part
    state.frames[base + PARENT] = parent
