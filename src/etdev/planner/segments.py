"""Planning of buffers segment by segment.

Many programs have *necks*: instants across which few buffers are in use. Between two necks is a segment. An exact
search for the buffers of one segment is small. One segment is planned first, on its own. Buffers in use across a neck
then keep their offsets in the segments on the other side.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from etdev.planner.problem import Buffer
from etdev.planner.restarts import Restarts
from etdev.planner.search import FOUND, NONE
from etdev.planner.tables import make_tables

_LEAST_STARTS = 40
"""Minimum number of buffers that start in a segment, except in the last segment."""
_MOST_STARTS = 160
"""Maximum number of buffers that start in a segment."""
_MOST_ACROSS = 4
"""Maximum number of buffers in use across a neck."""
_MOST_PAIRS = 100_000
"""Largest number of pairs of overlapping lifetimes in a segment."""
_STEPS = 4_000_000
"""Limit on the steps of the search for one segment."""


class Segments:
    """A group of buffers, divided at necks. The buffers must be sorted by start."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = buffers
        self._segments = _divide(buffers)
        self._first = max(range(len(self._segments)), key=self._load, default=None)
        """Segment to plan first: the one whose search failed last, or initially the one with the most bytes in use."""
        self.steps = 0
        """Number of steps spent."""
        self.bound = 0
        """Proved lower bound on the size of all plans, in bytes."""

    def fit(self, capacity: int, most_steps: int) -> list[int] | None:
        """Return offsets that fit the capacity, or None if the method found none in ``most_steps`` steps.

        If the search for a segment fails, the next attempt plans that segment first.
        """
        end = self.steps + most_steps
        tried: set[int] = set()
        while self._first is not None and self._first not in tried:
            tried.add(self._first)
            offsets: dict[int, int] = {}
            order = [*range(self._first, len(self._segments)), *reversed(range(self._first))]
            failed = next((segment for segment in order if not self._plan(segment, capacity, offsets, end)), None)
            if failed is None:
                return [offsets[index] for index in range(len(self._buffers))]
            self._first = failed
        return None

    def _load(self, segment: int) -> int:
        """Return the largest number of bytes in use at once in a segment."""
        changes: Counter[int] = Counter()
        for index in self._segments[segment]:
            buffer = self._buffers[index]
            changes[buffer.start] += buffer.size
            changes[buffer.end] -= buffer.size
        return max(accumulate(changes[instant] for instant in sorted(changes)))

    def _plan(self, segment: int, capacity: int, offsets: dict[int, int], end: int) -> bool:
        """Plan a segment's buffers that are not in ``offsets`` yet, and add them to it. Return False if that fails.

        ``end`` is the limit on :attr:`steps`.
        """
        indices = self._segments[segment]
        buffers = [replace(self._buffers[i], pin=offsets.get(i, self._buffers[i].pin)) for i in indices]
        tables = make_tables(buffers, _MOST_PAIRS) if self.steps < end else None
        if tables is None:
            return False
        self.steps += len(tables.near)
        restarts = Restarts(tables, self.steps)
        result, found = restarts.fit(capacity, min(_STEPS, max(end - self.steps, 1)))
        self.steps += restarts.steps
        if result == NONE and not offsets:
            self.bound = max(self.bound, capacity + 1)
        if result == FOUND:
            offsets.update(zip(indices, found, strict=True))
        return result == FOUND


def _divide(buffers: Sequence[Buffer]) -> list[list[int]]:
    """Return the indices of the buffers in use in each segment. If no necks were found, return no segments."""
    starts = [buffer.start for buffer in buffers]
    bounds = _find_necks(starts, sorted(buffer.end for buffer in buffers))
    segments: list[list[int]] = []
    for begin, end in pairwise([*bounds, len(starts)]) if len(bounds) > 1 else ():
        earlier = [index for index in segments[-1] if buffers[index].end > starts[begin]] if segments else []
        segments.append([*earlier, *range(begin, end)])
    return segments


def _find_necks(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Return 0 and, for each neck, the number of buffers that start before it.

    Both arguments must be sorted. Return 0 alone if the buffers need no neck, or lack a neck that they need.
    """
    bounds = [0]
    while len(starts) - bounds[-1] > _MOST_STARTS:
        least = bounds[-1] + _LEAST_STARTS
        possible = {bisect_left(starts, starts[index]) for index in range(least, bounds[-1] + _MOST_STARTS + 1)}
        across = {bound: bound - bisect_right(ends, starts[bound]) for bound in sorted(possible) if bound >= least}
        neck = min(across, key=across.__getitem__, default=0)
        if not neck or across[neck] > _MOST_ACROSS:
            return [0]
        bounds.append(neck)
    return bounds
