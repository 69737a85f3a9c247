"""Parts of a problem: groups of buffers that are planned independently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from etdev.planner.problem import Buffer, Problem

_DEPTH = 6
"""Maximum depth of groups in groups. At each depth, some buffers go to the bottom, and all others are grouped again."""


@dataclass(slots=True)
class Part:
    """A group of buffers that is planned separately.

    During the lifetimes of the group, all other buffers in use are below the group.
    """

    indices: tuple[int, ...]
    """Indices in ``problem.buffers``, sorted by start."""
    buffers: tuple[Buffer, ...]
    base: int
    """Number of bytes below the part. The part's offsets and sizes count from there."""
    offsets: list[int] = field(default_factory=list)
    """Offsets of the smallest plan so far, in the order of ``buffers``."""
    size: int = 0
    """Size of the smallest plan so far, in bytes."""
    is_in_strips: bool = False
    """True if the buffers were first placed in strips, instead of by a strategy."""
    steps: int = 0
    """Number of steps spent on placing the buffers one after another."""
    bound: int = 0
    """Lower bound on the size of all plans, in bytes, as proved by searches so far."""


def find_parts(problem: Problem, offsets: list[int]) -> list[Part]:
    """Split a problem into parts that can be planned independently, and return these parts.

    Buffers whose lifetimes overlap, directly or through other buffers, form a group. Some buffers are in
    use during the whole lifetime of their group. The function places these buffers below the rest of the group, unless
    that needs padding. It writes their offsets to ``offsets``, and they belong to no part. Moving such a buffer to the
    bottom makes no plan larger, so no smaller plan is missed.
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
    """Yield groups of the sorted indices. Lifetimes of buffers in different groups do not overlap."""
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
    """Return the buffers that can be placed below the rest of the group without padding.

    Such a buffer is in use for the group's whole lifetime, and its size is a multiple of the group's largest alignment.
    """
    start = buffers[group[0]].start
    end = max(buffers[index].end for index in group)
    alignment = max(buffers[index].alignment for index in group)
    return [
        index
        for index in group
        if buffers[index].start == start and buffers[index].end == end and buffers[index].size % alignment == 0
    ]
