"""Improvement of a plan by replanning small groups of buffers.

Each group is a buffer that ends above the limit, together with the buffers in use around the same time. All other
buffers keep their offsets, like pinned buffers. So each search is small for a plan of any size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from etdev.planner.problem import Buffer
from etdev.planner.restarts import Restarts
from etdev.planner.search import FOUND
from etdev.planner.tables import make_tables

_MARGIN = 4
"""Number of start instants by which the first window extends on each side. It doubles with each further window."""
_MOST_MOVED = 600
"""Largest number of buffers that one search replans."""
_MOST_NEAR = 2_000
"""Largest number of buffers in a window, including buffers that keep their offsets."""
_MOST_PAIRS = 100_000
_STRIDE = 256
"""Number of consecutive buffers that are skipped together if the lifetimes of all of them have ended."""
_STEPS = 4_000_000
"""Limit on the steps of one search."""


class Fixer:
    """A plan, and attempts to reduce its size. The buffers must be sorted by start."""

    def __init__(self, buffers: Sequence[Buffer], offsets: Sequence[int], most_steps: int) -> None:
        self._buffers = buffers
        self._most_steps = most_steps
        self._starts = [buffer.start for buffer in buffers]
        self._ends = [max(b.end for b in buffers[place : place + _STRIDE]) for place in range(0, len(buffers), _STRIDE)]
        self.offsets = list(offsets)
        self.steps = 0
        """Number of steps spent."""

    def fit(self, capacity: int) -> list[int]:
        """Make the plan fit a capacity. Return the indices of the buffers that still end above the capacity."""
        high = [index for index in range(len(self.offsets)) if self._end(index) > capacity]
        return [index for index in high if self._end(index) > capacity and not self._fix(index, capacity)]

    def _end(self, index: int) -> int:
        return self.offsets[index] + self._buffers[index].size

    def _fix(self, index: int, capacity: int) -> bool:
        """Replan a buffer and its surroundings, in larger and larger windows. Return whether the buffer fits now."""
        margin, moved = _MARGIN, 0
        while self.steps < self._most_steps:
            inside, around = self._look(index, capacity, margin)
            many = len(inside) > _MOST_MOVED or len(inside) + len(around) > _MOST_NEAR
            if many or (margin > _MARGIN and len(inside) == moved and not around):
                return False
            moved = len(inside)
            if self._plan(inside, around, capacity):
                return True
            margin *= 2
        return False

    def _look(self, index: int, capacity: int, margin: int) -> tuple[list[int], list[int]]:
        """Return the buffers in use in a window around ``index``, as two lists.

        Buffers in the first list are in use only inside the window. Buffers in the second list are also in use outside.
        The method widens the window while a buffer in it has an end address above ``capacity`` and is also in use
        outside. If the window gets too many buffers, the method stops and returns all its buffers in the first list.
        """
        begin, end = self._buffers[index].start, self._buffers[index].end
        while True:
            first, last = self._widen(begin, end, margin)
            near = self._find(first, last)
            high = [self._buffers[i] for i in near if self._end(i) > capacity]
            if len(near) > _MOST_NEAR:
                return near, []
            begin = min([begin, *(b.start for b in high)])
            end = max([end, *(b.end for b in high)])
            if first <= begin and end <= last:
                break
        inside = [i for i in near if first <= self._buffers[i].start and self._buffers[i].end <= last]
        within = set(inside)
        return inside, [i for i in near if i not in within]

    def _widen(self, begin: int, end: int, margin: int) -> tuple[int, int]:
        """Return a range of instants with ``margin`` more start instants on each side."""
        first = max(bisect_left(self._starts, begin) - margin, 0)
        last = bisect_left(self._starts, end) + margin
        return self._starts[first], self._starts[last] if last < len(self._starts) else max(self._ends)

    def _find(self, first: int, last: int) -> list[int]:
        """Return the buffers in use at any instant of the half-open range.

        If more than ``_MOST_NEAR`` buffers start in the range, return ``_MOST_NEAR`` + 1 of these buffers.
        """
        begin, behind = bisect_left(self._starts, first), bisect_left(self._starts, last)
        if behind - begin > _MOST_NEAR:
            self.steps += _MOST_NEAR
            return list(range(begin, begin + _MOST_NEAR + 1))
        found: list[int] = []
        for number, end in enumerate(self._ends[: -(-behind // _STRIDE)]):
            if end > first:
                places = range(number * _STRIDE, min((number + 1) * _STRIDE, behind))
                found += [place for place in places if self._buffers[place].end > first]
                self.steps += _STRIDE
        self.steps += behind // _STRIDE
        return found

    def _plan(self, inside: Sequence[int], around: Sequence[int], capacity: int) -> bool:
        fixed = [replace(self._buffers[i], pin=self.offsets[i]) for i in around]
        tables = make_tables([*(self._buffers[i] for i in inside), *fixed], _MOST_PAIRS)
        if tables is None:
            self.steps += _MOST_PAIRS
            return False
        self.steps += len(tables.near)
        restarts = Restarts(tables, self.steps)
        result, offsets = restarts.fit(capacity, _STEPS)
        self.steps += restarts.steps
        if result == FOUND:
            for i, offset in zip(inside, offsets, strict=False):
                self.offsets[i] = offset
        return result == FOUND
