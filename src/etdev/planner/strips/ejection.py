"""A search for a smaller plan by ejection chains: buffers that do not fit take the places of others.

The arena is made smaller, and the buffers that end above it are taken out. One of these, at random, goes back in where
it displaces the cheapest buffers, which are then out. This is repeated until none is out. A buffer costs more each time
that it displaced others, so the search does not exchange the same buffers for ever.

Source: Nagata, Bräysy, "A powerful route minimization heuristic for the vehicle routing problem with time windows",
2009, which inserts customers into routes like this.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from etdev.planner.problem import Buffer

_Numbers: TypeAlias = NDArray[np.int64]

_NEVER = 2**62
"""Start of a buffer that is out, so it overlaps no other one."""


class EjectionChains:
    """A plan of buffers, and a search for smaller ones. The buffers have no pins, and an alignment of one."""

    def __init__(self, buffers: Sequence[Buffer], offsets: Sequence[int]) -> None:
        """Begin with the plan ``offsets``."""
        # Only the order of the instants matters, so number them.
        lifetimes = np.array([(buffer.start, buffer.end) for buffer in buffers], dtype=np.int64)
        _, places = np.unique(lifetimes, return_inverse=True)
        starts, ends = places.reshape(-1, 2).T
        self._sizes: _Numbers = np.array([buffer.size for buffer in buffers], dtype=np.int64)
        self._starts: _Numbers = starts.astype(np.int64)
        self._ends: _Numbers = ends.astype(np.int64)
        self._offsets: _Numbers = np.array(offsets, dtype=np.int64)
        self._draws = Random(0)
        self.steps = 0
        """Number of steps so far. Each look at a buffer is one."""

    @property
    def offsets(self) -> list[int]:
        """Offsets of the smallest plan so far."""
        return [int(offset) for offset in self._offsets]

    @property
    def size(self) -> int:
        """Size of the smallest plan so far."""
        return int((self._offsets + self._sizes).max())

    def fit(self, capacity: int, most_steps: int) -> bool:
        """Return True if the search finds a plan that fits the capacity before ``steps`` exceeds ``most_steps``.

        The capacity must be at least the size of the largest buffer.
        """
        attempt = _Attempt(self._sizes, self._starts, self._ends, self._offsets)
        out = attempt.take_out(np.flatnonzero(self._offsets + self._sizes > capacity))
        while out and self.steps < most_steps:
            self.steps += len(self._sizes)
            index = out.pop(self._draws.randrange(len(out)))
            out += attempt.insert(index, int(self._starts[index]), capacity)
        if not out:
            self._offsets = attempt.offsets
        return not out


class _Attempt:
    """A plan of some of the buffers; the others are out."""

    def __init__(self, sizes: _Numbers, starts: _Numbers, ends: _Numbers, offsets: _Numbers) -> None:
        self._sizes = sizes
        self._starts = starts.copy()
        self._ends = ends
        self.offsets = offsets.copy()
        self._first_costs: _Numbers = sizes * np.sqrt(ends - starts).astype(np.int64)
        self._costs = self._first_costs.copy()

    def take_out(self, indices: _Numbers) -> list[int]:
        self._starts[indices] = _NEVER
        return [int(index) for index in indices]

    def insert(self, index: int, start: int, capacity: int) -> list[int]:
        """Insert a buffer where it displaces the cheapest ones. Return these, which are out then.

        The possible offsets are those next to another buffer, at the bottom and at the top of the arena. Of equally
        cheap offsets, take the lowest.
        """
        size = int(self._sizes[index])
        others = np.flatnonzero((self._starts < self._ends[index]) & (self._ends > start))
        lows = self.offsets[others]
        highs = lows + self._sizes[others]
        possible = np.concatenate(([0, capacity - size], highs, lows - size))
        possible = np.unique(possible[(possible >= 0) & (possible <= capacity - size)])
        by_low, by_high = np.argsort(lows, kind="stable"), np.argsort(highs, kind="stable")
        # Cost of the buffers that begin below the top of each place, less that of the ones that end below its bottom.
        begun = np.searchsorted(lows[by_low], possible + size, side="left")
        ended = np.searchsorted(highs[by_high], possible, side="right")
        costs = self._costs[others]
        displaced = _sums(costs[by_low])[begun] - _sums(costs[by_high])[ended]
        offset = int(possible[np.argmin(displaced)])
        out = self.take_out(others[(lows < offset + size) & (highs > offset)])
        if out:
            self._costs[index] += self._first_costs[index]
        self.offsets[index] = offset
        self._starts[index] = start
        return out


def _sums(numbers: _Numbers) -> _Numbers:
    """Return the sums of the first 0, 1, … of the numbers."""
    return np.concatenate(([0], np.cumsum(numbers)))
