"""Problems apart: buffers that are planned without regard to others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from etdev.planner.problem import Buffer, Problem

_DEPTH = 6
"""How often buffers are taken from below the same others, at most; lifetimes nested deeper than that are rare."""


@dataclass(slots=True)
class Part:
    """Buffers that no other one is in use together with, except for what lies below all of them."""

    indices: tuple[int, ...]
    """In ``problem.buffers``, by start."""
    buffers: tuple[Buffer, ...]
    base: int
    """Bytes below. Offsets and sizes of a part count from there."""
    offsets: list[int] = field(default_factory=list)
    """The smallest plan so far, in the order of ``buffers``."""
    size: int = 0
    """Bytes that it takes."""
    bound: int = 0
    """Bytes that any plan takes, as far as this was proved by a search."""


def find_parts(problem: Problem, offsets: list[int]) -> list[Part]:
    """The parts of a problem; writes the offsets of the buffers that are in none.

    Those are buffers that are in use as long as all others are: they lie at the bottom, if that costs no padding. To
    move one there from where it lies in any plan is to exchange it with what is below, so no smaller plan is missed.
    """
    buffers = problem.buffers
    active = sorted((i for i, b in enumerate(buffers) if b.occupies), key=lambda index: buffers[index].start)
    pinned = any(buffers[index].pin is not None for index in active)
    todo = [(active, 0, 0 if pinned else _DEPTH)]
    parts: list[Part] = []
    while todo:
        indices, base, depth = todo.pop()
        for group in _apart(buffers, indices):
            bottom = _whole(buffers, group) if depth else []
            if not bottom:
                parts.append(Part(tuple(group), tuple(buffers[index] for index in group), base))
                continue
            above = base
            for index in bottom:
                offsets[index] = above
                above += buffers[index].size
            below = set(bottom)
            todo.append(([index for index in group if index not in below], above, depth - 1))
    return parts


def _apart(buffers: Sequence[Buffer], indices: Sequence[int]) -> Iterator[list[int]]:
    """The indices, which are in the order of starts, where none is in use before and after a start."""
    group: list[int] = []
    end = 0
    for index in indices:
        if group and buffers[index].start >= end:
            yield group
            group = []
        end = max(end, buffers[index].end) if group else buffers[index].end
        group.append(index)
    if group:
        yield group


def _whole(buffers: Sequence[Buffer], group: Sequence[int]) -> list[int]:
    """Those that are in use from the first start to the last end, and that leave the alignment of others as it is."""
    start = buffers[group[0]].start
    end = max(buffers[index].end for index in group)
    alignment = max(buffers[index].alignment for index in group)
    return [
        index
        for index in group
        if buffers[index].start == start and buffers[index].end == end and buffers[index].size % alignment == 0
    ]
