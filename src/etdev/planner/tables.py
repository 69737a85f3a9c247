"""Tables for the exact search: buffers and sections as flat lists of integers.

A *section* is a range of time in which lifetimes begin but none ends. So all buffers of a section are in use at the
section's last start. Two buffers are in use together if and only if they share a section.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from etdev.planner.kernel import LARGEST, Runner, Table
from etdev.planner.problem import Buffer


class Tables(NamedTuple):
    """Constants of a search. Index i means buffer i of the list from which the tables were made."""

    size: Table
    """Size of each buffer in bytes."""
    height: Table
    """Size of each buffer, rounded up to the smallest alignment. No other buffer can begin in the padding."""
    mask: Table
    """Alignment of each buffer, minus 1."""
    pin: Table
    """Pinned offset of each buffer, or -1 for a buffer without a pin."""
    width: Table
    """Length of each buffer's lifetime in instants."""
    first: Table
    """First section of each buffer."""
    last: Table
    """For each buffer, the number of the section after the last section that contains it."""
    kind: Table
    """Number of each buffer's kind. Buffers of one kind are interchangeable."""
    near_start: Table
    """Start of each buffer's neighbours in ``near``. Buffer i has near[near_start[i] : near_start[i + 1]].

    Neighbours are the buffers that are in use together with the buffer.
    """
    near: Table
    crowd_start: Table
    """Start of each section's buffers in ``crowd``. Section s has crowd[crowd_start[s] : crowd_start[s + 1]]."""
    crowd: Table
    spare: Table
    """For each section, the largest padding of any of its buffers, in bytes."""


def find_sections(buffers: Sequence[Buffer]) -> tuple[list[int], list[int], int]:
    """Return the first section of each buffer, the section after its last section, and the number of sections.

    All buffers must occupy bytes.
    """
    starts = sorted({buffer.start for buffer in buffers})
    rank = {start: index for index, start in enumerate(starts)}
    first = [rank[buffer.start] for buffer in buffers]
    last = [bisect_left(starts, buffer.end) for buffer in buffers]
    # If buffers only begin at an instant, its set includes that of the instant before.
    ends = set(last)
    section, sections = 0, []
    for place in range(len(starts) + 1):
        section += place in ends
        sections.append(section)
    return [sections[place] for place in first], [sections[place] for place in last], section


def make_tables(buffers: Sequence[Buffer], most_pairs: int) -> Tables | None:
    """Return the tables as lists, or None if numbers are too large or too many pairs of buffers overlap in time."""
    if sum(b.size + b.alignment for b in buffers) + max(b.pin or 0 for b in buffers) >= LARGEST:
        return None
    first, last, count = find_sections(buffers)
    near = _find_neighbours(first, last, most_pairs)
    if near is None:
        return None
    crowds: list[list[int]] = [[] for _ in range(count)]
    for index in range(len(buffers)):
        for section in range(first[index], last[index]):
            crowds[section].append(index)
    unit = min(buffer.alignment for buffer in buffers)
    height = [-(-buffer.size // unit) * unit for buffer in buffers]
    kinds: dict[tuple[int, int, int, int, int], int] = {}
    return Tables(
        size=[buffer.size for buffer in buffers],
        height=height,
        mask=[buffer.alignment - 1 for buffer in buffers],
        pin=[-1 if buffer.pin is None else buffer.pin for buffer in buffers],
        width=[buffer.end - buffer.start for buffer in buffers],
        first=first,
        last=last,
        kind=[
            kinds.setdefault((b.size, b.alignment, first[i], last[i], -1 - i if b.pin is not None else 0), len(kinds))
            for i, b in enumerate(buffers)
        ],
        near_start=_starts(near),
        near=[other for others in near for other in others],
        crowd_start=_starts(crowds),
        crowd=[index for crowd in crowds for index in crowd],
        spare=[max(height[index] - buffers[index].size for index in crowd) for crowd in crowds],
    )


def convert(tables: Tables, runner: Runner) -> Tables:
    """Return the same tables in the form that a runner needs."""
    return Tables(*(runner.table(table) for table in tables))


def _find_neighbours(first: Sequence[int], last: Sequence[int], most_pairs: int) -> list[list[int]] | None:
    begins = sorted(range(len(first)), key=lambda index: first[index])
    near: list[list[int]] = [[] for _ in first]
    live: list[int] = []
    pairs = 0
    for index in begins:
        live = [other for other in live if last[other] > first[index]]
        pairs += len(live)
        if pairs > most_pairs:
            return None
        near[index] += live
        for other in live:
            near[other].append(index)
        live.append(index)
    return near


def _starts(lists: Sequence[Sequence[int]]) -> list[int]:
    starts = [0]
    for values in lists:
        starts.append(starts[-1] + len(values))
    return starts
