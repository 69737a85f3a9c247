"""A search for a smaller plan, from an order that gave a good one.

Buffers are placed in the order, each at the lowest offset that is free, in an arena that is one byte smaller than the
best plan so far. One that does not fit is moved to an earlier place in the order, which is drawn, and placing goes on
from there. Each time that all fit, the arena shrinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from etdev.planner.extent import arena_size
from etdev.planner.fit import first_fit
from etdev.planner.problem import Buffer, Problem

_STEPS = 2_000_000
"""Overlapping buffers that are looked at in one search, at most; about half a second."""
_STEPS_PER_MOVE = 100
"""The same, for each of the n * n moves of a buffer to another place in an order; so few buffers take no time."""
_PAIRS = 1_000_000
"""Overlapping pairs of buffers, at most, for the search to be worth its memory and its time."""


def improve(problem: Problem, order: Sequence[int], size: int, target: int) -> list[int] | None:
    """Offsets of a plan smaller than ``size``, or None if none was found.

    ``order`` has all buffers that are to be placed, as indices; all others have pins or are never in use. The search
    ends at a plan of ``target`` bytes or fewer.
    """
    overlaps = _find_overlaps(problem.buffers)
    if overlaps is None:
        return None
    search = _Search(problem.buffers, order, overlaps)
    found: list[int] | None = None
    while size > target and search.fit(size - 1):
        found = search.offsets()
        size = arena_size(problem, found)
    return found


class _Search:
    """An order of buffers, and where the first of them lie."""

    def __init__(self, buffers: Sequence[Buffer], order: Sequence[int], overlaps: Sequence[Sequence[int]]) -> None:
        self._buffers = buffers
        self._order = list(order)
        self._overlaps = overlaps
        self._random = Random(0)
        self._steps = min(_STEPS, _STEPS_PER_MOVE * len(order) ** 2)
        # (begin, end) of each buffer that is placed.
        self._placed: list[tuple[int, int] | None] = [
            None if buffer.pin is None else (buffer.pin, buffer.pin + buffer.size) for buffer in buffers
        ]

    def fit(self, size: int) -> bool:
        """Place all buffers in an arena of that many bytes; False if the steps do not suffice for it."""
        place = 0
        self._clear(0, len(self._order))
        while place < len(self._order):
            if self._steps < 0:
                return False
            if self._put(self._order[place], size):
                place += 1
                continue
            if place == 0:
                return False  # Pinned buffers alone are in its way.
            earlier = self._random.randrange(place)
            self._order.insert(earlier, self._order.pop(place))
            self._clear(earlier, place + 1)
            place = earlier
        return True

    def _put(self, index: int, size: int) -> bool:
        """Place one buffer; False if the arena is too small for it."""
        self._steps -= 1 + len(self._overlaps[index])
        buffer = self._buffers[index]
        used = sorted(entry for other in self._overlaps[index] if (entry := self._placed[other]) is not None)
        begin = first_fit(used, buffer.size, buffer.alignment)
        if begin + buffer.size > size:
            return False
        self._placed[index] = (begin, begin + buffer.size)
        return True

    def _clear(self, first: int, last: int) -> None:
        for index in self._order[first:last]:
            self._placed[index] = None

    def offsets(self) -> list[int]:
        """Where the buffers lie, 0 for those that are never in use."""
        return [0 if entry is None else entry[0] for entry in self._placed]


def _find_overlaps(buffers: Sequence[Buffer]) -> list[list[int]] | None:
    """For each buffer those that are in use at some instant of its lifetime; None if they are too many."""
    events = [(buffer.end, False, index) for index, buffer in enumerate(buffers) if buffer.occupies]
    events += [(buffer.start, True, index) for index, buffer in enumerate(buffers) if buffer.occupies]
    events.sort()
    overlaps: list[list[int]] = [[] for _ in buffers]
    live: dict[int, None] = {}  # A set that keeps its order, so that every run sees the same.
    pairs = 0
    for _, begins, index in events:
        if not begins:
            del live[index]
            continue
        pairs += len(live)
        if pairs > _PAIRS:
            return None
        overlaps[index] = list(live)
        for other in live:
            overlaps[other].append(index)
        live[index] = None
    return overlaps
