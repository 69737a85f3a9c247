"""An exact search for a plan that fits a capacity.

Buffers are placed from the bottom up. Time is divided into sections. Each section has a *floor*, the lowest offset that
any of its unplaced buffers can have. The search picks a section, usually the one with the lowest floor. The search then
asks which buffer of this section is placed next at that floor.

There are two kinds of answers. The first is a buffer that can be placed at the floor. The second is that no buffer is
placed at the floor. In this second case, the section's lowest unplaced buffer is on top of a buffer of another section.
The section's bytes below that unplaced buffer are wasted.

Any plan can be pushed down until no buffer can move further. Each such plan corresponds to one sequence of answers. So
if no sequence leads to a plan, no plan fits the capacity.

A sequence of answers fails when the unplaced buffers of a section, stacked on its floor, exceed the capacity. If no
unplaced buffer is in use both before and after some instant, the sections on the two sides are searched separately. The
ideas of canonical plans, of bounds by section and of splitting come from Moffitt, "MiniMalloc: A Lightweight Memory
Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023. Asking by section instead of by buffer is new here.
"""

from __future__ import annotations

from typing import NamedTuple

from etdev.planner.kernel import Table, kernel
from etdev.planner.state import (
    CHOICE,
    FLOORS,
    FRAME,
    LOWS,
    PARENT,
    PART,
    SAVED,
    SECTION,
    STEPS,
    State,
    has_room,
    open_frame,
    split,
    undo,
)
from etdev.planner.tables import Tables

FOUND, NONE, STOPPED = 1, 0, -1
"""Results of a search: a plan exists, no plan fits, or the search stopped without an answer."""

_FAR = 2**62
"""A number of bytes above every offset: twice ``LARGEST``."""
_WEIGHT = 2**20
"""A number of answers is multiplied by this, so that its integer division by a section's weight stays precise."""


class Rule(NamedTuple):
    """Rule that selects the section in which a buffer is placed next: the section with the smallest key.

    The key is ``floor`` times the section's floor, minus ``left`` times the bytes of the section's unplaced buffers.
    Of equal keys, the section with the fewest spare bytes is chosen. If ``crowd`` is 1, the lowest floor is chosen.
    """

    floor: int
    left: int
    crowd: int = 0
    """If 1, the key is instead the number of possible answers divided by the section's weight."""
    rank: int = 0
    """If 1, the section whose first answer has the lowest rank is chosen among equal keys instead."""


@kernel
def next_answer(tables: Tables, state: State, rank: Table, section: int, before: int) -> int:
    """Return the first buffer by rank that fits at the floor and comes after ``before`` (-1: any), or -1 if none."""
    chosen, chosen_rank = -1, len(rank)
    last_rank, last_kind = -1, -1
    if before >= 0:
        last_rank, last_kind = rank[before], tables.kind[before]
    floor = state.floor[section]
    for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
        index = tables.crowd[place]
        if (
            state.placed[index] == 0
            and state.low[index] == floor
            and rank[index] > last_rank
            and rank[index] < chosen_rank
            and tables.kind[index] != last_kind
        ):
            chosen, chosen_rank = index, rank[index]
    state.used[STEPS] += tables.crowd_start[section + 1] - tables.crowd_start[section]
    return chosen


@kernel
def choose_section(
    tables: Tables,
    state: State,
    rank: Table,
    begin: int,
    end: int,
    capacity: int,
    by_floor: int,
    by_left: int,
    by_crowd: int,
    by_rank: int,
) -> int:
    """Return the section in ``range(begin, end)`` in which a buffer is placed next; -1 if all buffers are placed."""
    chosen, chosen_key, chosen_slack, steps = -1, 0, 0, end - begin
    for section in range(begin, end):
        left = state.left[section]
        if left == 0:
            continue
        floor = state.floor[section]
        slack = capacity - floor - left
        key = by_floor * floor - by_left * left
        if by_crowd:
            answers = 1 if slack > 0 else 0
            for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
                index = tables.crowd[place]
                if state.placed[index] == 0 and state.low[index] == floor:
                    answers += 1
            steps += tables.crowd_start[section + 1] - tables.crowd_start[section]
            key, slack = _WEIGHT * answers // state.weight[section], floor
        if by_rank:
            if chosen >= 0 and key > chosen_key:
                continue
            slack = rank[next_answer(tables, state, rank, section, -1)]
        if chosen < 0 or key < chosen_key or (key == chosen_key and slack < chosen_slack):
            chosen, chosen_key, chosen_slack = section, key, slack
    state.used[STEPS] += steps
    return chosen


@kernel
def next_level(tables: Tables, state: State, section: int) -> int:
    """Return the lowest floor that a section can have next if no buffer is placed at the present one, or ``_FAR``."""
    floor, level = state.floor[section], _FAR
    for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
        index = tables.crowd[place]
        if state.placed[index] == 1:
            continue
        if state.low[index] > floor:
            level = min(level, state.low[index])
            continue
        if tables.pin[index] >= 0:
            return _FAR
        mask = tables.mask[index]
        # In a plan that is pushed down, this buffer would be on top of one that is in use at the same time, but not in
        # this section.
        for near in range(tables.near_start[index], tables.near_start[index + 1]):
            other = tables.near[near]
            if state.placed[other] == 0 and (section < tables.first[other] or section >= tables.last[other]):
                top = (state.low[other] + tables.height[other] + mask) & ~mask
                if top > floor:
                    level = min(level, top)
        state.used[STEPS] += tables.near_start[index + 1] - tables.near_start[index]
    return level


@kernel
def raise_low(tables: Tables, state: State, index: int, level: int, capacity: int, node: int) -> bool:
    """Exclude all offsets below ``level`` for a buffer. Return whether the buffer can still fit."""
    mask = tables.mask[index]
    level = (level + mask) & ~mask
    before = state.low[index]
    if level <= before:
        return True
    if tables.pin[index] >= 0 or level + tables.size[index] > capacity:
        state.weight[tables.first[index]] += 1
        return False
    used = state.used[LOWS]
    state.low_trail[2 * used] = index
    state.low_trail[2 * used + 1] = before
    state.used[LOWS] = used + 1
    state.low[index] = level
    for section in range(tables.first[index], tables.last[index]):
        if state.floor[section] == before:
            state.stale[section] = node
    state.used[STEPS] += tables.last[index] - tables.first[index]
    return True


@kernel
def place_buffer(tables: Tables, state: State, index: int, capacity: int, node: int) -> bool:
    """Place a buffer at its lowest offset. Return whether the unplaced neighbours can still fit above the buffer."""
    state.placed[index] = 1
    first, last = tables.first[index], tables.last[index]
    for section in range(first, last):
        state.left[section] -= tables.height[index]
        state.stale[section] = node
        if section > first:
            state.cut[section] -= 1
    top = state.low[index] + tables.height[index]
    state.used[STEPS] += last - first + tables.near_start[index + 1] - tables.near_start[index]
    for place in range(tables.near_start[index], tables.near_start[index + 1]):
        other = tables.near[place]
        if (
            state.placed[other] == 0
            and state.low[other] < top
            and not raise_low(tables, state, other, top, capacity, node)
        ):
            return False
    return True


@kernel
def raise_section(tables: Tables, state: State, section: int, level: int, capacity: int, node: int) -> bool:
    """Leave a section's bytes below ``level`` unused. Return whether the section's unplaced buffers can still fit."""
    for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
        index = tables.crowd[place]
        if (
            state.placed[index] == 0
            and state.low[index] < level
            and not raise_low(tables, state, index, level, capacity, node)
        ):
            return False
    return True


@kernel
def lift_floors(tables: Tables, state: State, begin: int, end: int, capacity: int, node: int) -> bool:
    """Recompute outdated floors. Return whether the unplaced buffers of each section can still fit."""
    steps = end - begin
    for section in range(begin, end):
        if state.stale[section] != node or state.left[section] == 0:
            continue
        floor = _FAR
        for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
            index = tables.crowd[place]
            if state.placed[index] == 0 and state.low[index] < floor:
                floor = state.low[index]
        steps += tables.crowd_start[section + 1] - tables.crowd_start[section]
        if floor > state.floor[section]:
            used = state.used[FLOORS]
            state.floor_trail[2 * used] = section
            state.floor_trail[2 * used + 1] = state.floor[section]
            state.used[FLOORS] = used + 1
            state.floor[section] = floor
        if floor + state.left[section] > capacity + tables.spare[section]:
            state.weight[section] += 1
            state.used[STEPS] += steps
            return False
    state.used[STEPS] += steps
    return True


@kernel
def is_cut(tables: Tables, state: State, index: int) -> bool:
    """Return True if this placed buffer crosses a section border that no unplaced buffer crosses any more."""
    cuts = 0
    for section in range(tables.first[index] + 1, tables.last[index]):
        cuts += state.cut[section] == 0
    return cuts > 0


@kernel
def find_answer(tables: Tables, state: State, rank: Table, base: int, capacity: int) -> tuple[int, int]:
    """Return the next answer to try in a frame of the search's stack, or (-1, 0) after all answers were tried.

    For a buffer at the floor, the result is (buffer, 0). For the answer that no buffer is at the floor, the result is
    (number of buffers, lowest possible new floor).
    """
    section, before = state.frames[base + SECTION], state.frames[base + CHOICE]
    count = len(rank)
    if before == count:
        return -1, 0
    answer = next_answer(tables, state, rank, section, before)
    if answer >= 0:
        return answer, 0
    room = capacity + tables.spare[section] - state.left[section]
    if state.floor[section] < room:
        level = next_level(tables, state, section)
        if level <= room:
            return count, level
    return -1, 0


@kernel
def give_answer(tables: Tables, state: State, base: int, answer: int, level: int, capacity: int, node: int) -> bool:
    """Apply an answer in a frame of the search's stack. Return whether the unplaced buffers may still fit."""
    for which in range(3):
        state.frames[base + SAVED + which] = state.used[which]
    state.frames[base + CHOICE] = answer
    if answer < len(tables.size):
        fits = place_buffer(tables, state, answer, capacity, node)
    else:
        fits = raise_section(tables, state, state.frames[base + SECTION], level, capacity, node)
    part = state.frames[base + PART]
    return fits and lift_floors(tables, state, state.parts[4 * part], state.parts[4 * part + 1], capacity, node)


@kernel
def may_fit(tables: Tables, state: State, capacity: int) -> bool:
    """Return True if each buffer fits the capacity, and each section's buffers together fit."""
    for index in range(len(tables.size)):
        if state.low[index] + tables.size[index] > capacity:
            return False
    for section in range(len(tables.spare)):
        if state.floor[section] + state.left[section] > capacity + tables.spare[section]:
            return False
    return True


@kernel
def ask(
    tables: Tables,
    state: State,
    rank: Table,
    base: int,
    capacity: int,
    by_floor: int,
    by_left: int,
    by_crowd: int,
    by_rank: int,
) -> bool:
    """Choose a section for a frame that has no section yet. Return False if all buffers are placed.

    If all buffers of the frame's part are placed, the frame moves on to the next part.
    """
    while state.frames[base + SECTION] < 0:
        part = state.frames[base + PART]
        begin, end = state.parts[4 * part], state.parts[4 * part + 1]
        section = choose_section(tables, state, rank, begin, end, capacity, by_floor, by_left, by_crowd, by_rank)
        if section >= 0:
            state.frames[base + SECTION] = section
            break
        following = state.parts[4 * part + 2]
        if following < 0:
            return False
        state.frames[base + PART] = following
        state.frames[base + PARENT] = state.parts[4 * following + 3]
    return True


@kernel
def go_back(tables: Tables, state: State, depth: int) -> int:
    """Undo the answer of a frame's parent and all later answers. Return the parent's depth; -1 without a parent."""
    parent = state.frames[FRAME * depth + PARENT]
    if parent >= 0:
        for frame in range(depth - 1, parent - 1, -1):
            undo(tables, state, FRAME * frame)
    return parent


@kernel
def go_on(tables: Tables, state: State, depth: int, answer: int) -> bool:
    """Open the frame that follows an answer. Return False if all buffers are placed."""
    part, parent = state.frames[FRAME * depth + PART], depth
    if answer < len(tables.size) and is_cut(tables, state, answer):
        begin, end, following = state.parts[4 * part], state.parts[4 * part + 1], state.parts[4 * part + 2]
        part = split(state, begin, end, following, depth)
        if part < 0:
            return False
        parent = state.parts[4 * part + 3]
    open_frame(state, depth + 1, part, parent)
    return True


@kernel
def search(
    tables: Tables,
    state: State,
    rank: Table,
    capacity: int,
    by_floor: int,
    by_left: int,
    by_crowd: int,
    by_rank: int,
    most_nodes: int,
    most_steps: int,
) -> int:
    """Search for a plan that fits the capacity. ``FOUND`` leaves the plan's offsets in ``state.low``.

    ``rank`` is the order in which buffers are tried as answers. The search returns ``STOPPED`` after ``most_nodes``
    answers or ``most_steps`` steps. It also returns ``STOPPED`` instead of ``NONE`` if its rule cannot prove that no
    plan exists.
    """
    if not may_fit(tables, state, capacity):
        return NONE
    part = split(state, 0, len(tables.spare), -1, -1)
    if part < 0:
        return FOUND
    open_frame(state, 0, part, -1)
    depth = node = 0
    while ask(tables, state, rank, FRAME * depth, capacity, by_floor, by_left, by_crowd, by_rank):
        answer, level = find_answer(tables, state, rank, FRAME * depth, capacity)
        if state.used[STEPS] > most_steps:
            return STOPPED
        if answer < 0:
            depth = go_back(tables, state, depth)
            if depth < 0:
                # The proof needs a rule that always asks about the section with the lowest floor.
                return STOPPED if by_left or by_crowd else NONE
            continue
        node += 1
        if node > most_nodes or not has_room(tables, state, depth):
            return STOPPED
        if not give_answer(tables, state, FRAME * depth, answer, level, capacity, node):
            undo(tables, state, FRAME * depth)
        elif go_on(tables, state, depth, answer):
            depth += 1
        else:
            return FOUND
    return FOUND
