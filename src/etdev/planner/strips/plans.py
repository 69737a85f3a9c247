"""Placement of buffers of few different sizes, in strips.

A *strip* is a range of bytes that is free during a range of instants. Sizes are placed in descending order. For each
size, the buffers are placed in order of their start. A buffer goes to the bottom of a strip that has room for it. Of
several such strips, it takes the one that is in use again first. Of strips that stay free without end, it takes the one
that was in use last. If no strip has room, the arena grows. The rest of the strip remains free for smaller buffers:
above the buffer, before it and after it.

So buffers of one size use the same bytes in turn, and smaller buffers fill the gaps. With thousands of buffers in use
at once, the plans are often close to the lower bound. Finding them is much faster than looking for a gap for each
buffer.

The largest buffers leave the largest gaps. So there are further plans, in which an exact search or ejection chains
place these first. The search finds the smallest arena, but only of few buffers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, islice, pairwise
from operator import add, itemgetter
from typing import NamedTuple, TypeAlias

from etdev.planner.bounds import lower_bound
from etdev.planner.problem import Buffer, Problem
from etdev.planner.restarts import Restarts
from etdev.planner.search import FOUND
from etdev.planner.tables import make_tables

_MOST_SIZES = 128
"""Largest number of different sizes. For each size, the planner visits all strips."""
_MOST_VISITS = 12_000_000
"""Largest product of the numbers of buffers, sizes and plans: about 20 seconds."""
_PADDED = 1.05
"""Largest factor by which alignment may increase the sizes of all buffers together."""
_MOST_LARGEST = 1_200
"""Largest number of buffers that an exact search places first."""
_MOST_PAIRS = 400_000
"""Largest number of pairs of overlapping lifetimes in such a search."""
_EXACT_STEPS = 4_000_000
"""Limit on the steps of one such search: about a second in Python."""
_ALL_EXACT_STEPS = 4 * _EXACT_STEPS
"""Limit on the steps of all such searches for a group of buffers."""
_SHARE = 0.97
"""Ejection chains place the largest buffers. These need this share of the lower bound."""
_LOWERINGS = 1_000
"""Ejection chains lower the arena by the lower bound divided by this number at a time."""
_CHAIN_STEPS = 200_000_000
"""Limit on the steps of the ejection chains: about 15 seconds."""
_CHAIN_STEPS_PER_PAIR = 30
"""Ejection chains of n buffers may take up to this number times n * n steps."""
_ARENAS = 3
"""The steps for each arena are the limit divided by this number. If they end, the arena is lowered by half as much."""

_Strip: TypeAlias = tuple[int, int, int, int]
"""``(end, -begin, offset, height)``: ``height`` bytes from ``offset`` are free from instant ``begin`` to ``end``.

So strips sort by their end. Among strips with equal ends, the one with the last begin is the first.
"""
_Lifetime: TypeAlias = tuple[int, int]
"""``(start, end)``: instants as in :class:`Buffer`."""


class _Plan(NamedTuple):
    size: int
    offsets: list[int]


class Strips:
    """Plans in strips for a group of buffers, each of which is in use at some instant."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = buffers
        self._unit = max(buffer.alignment for buffer in buffers)
        self._sizes = [-(-buffer.size // self._unit) * self._unit for buffer in buffers]
        self._distinct = sorted(set(self._sizes), reverse=True)
        self._smallest = _Plan(sum(self._sizes) + 1, [])
        self.steps = 0
        """Number of steps spent in exact searches."""

    def plans(self) -> Iterator[list[int]]:
        """Yield plans, as lists of the offsets of all buffers.

        The first plan places buffers forwards in time, the second one backwards. For more plans, an exact search first
        places the buffers of the two largest sizes, of the three largest sizes, and so on. Then ejection chains place
        most buffers first, each time in a smaller arena.

        Yield no plan if a buffer has a pin, if there are too many sizes, or if alignment adds too much padding.
        """
        visits = len(self._buffers) * len(self._distinct)
        is_large = len(self._distinct) > _MOST_SIZES or visits > _MOST_VISITS
        has_pins = any(buffer.pin is not None for buffer in self._buffers)
        padding_limit = _PADDED * sum(buffer.size for buffer in self._buffers)
        if is_large or has_pins or sum(self._sizes) > padding_limit:
            return
        yield from islice(self._all_plans(), _MOST_VISITS // visits)

    def _all_plans(self) -> Iterator[list[int]]:
        yield from self._plans_around({})
        for placed in chain(self._search_largest(), self._chain_largest()):
            yield from self._plans_around(placed)

    def _plans_around(self, placed: Mapping[int, int]) -> Iterator[list[int]]:
        """Yield two plans, with the offsets of the buffers that are ``placed`` already."""
        forwards = [(buffer.start, buffer.end) for buffer in self._buffers]
        backwards = [(-end, -start) for start, end in forwards]
        for lifetimes in (forwards, backwards):
            offsets = _place(lifetimes, self._sizes, placed)
            size = max(map(add, offsets, self._sizes))
            if size < self._smallest.size:
                self._smallest = _Plan(size, offsets)
            yield offsets

    def _search_largest(self) -> Iterator[dict[int, int]]:
        """Yield plans for more and more of the largest buffers: the offset of each by its index.

        Each of these plans has the smallest possible size.
        """
        for least in self._distinct[1:]:
            indices = [index for index, size in enumerate(self._sizes) if size >= least]
            most_steps = min(_EXACT_STEPS, _ALL_EXACT_STEPS - self.steps)
            if len(indices) > _MOST_LARGEST or most_steps <= 0:
                return
            buffers = tuple(
                Buffer(self._sizes[index], self._buffers[index].start, self._buffers[index].end, self._unit)
                for index in indices
            )
            tables = make_tables(buffers, _MOST_PAIRS)
            if tables is None:
                return
            search = Restarts(tables, self.steps)
            result, offsets = search.fit(lower_bound(Problem(buffers)), most_steps)
            self.steps += search.steps
            if result == FOUND:
                yield dict(zip(indices, offsets, strict=True))

    def _chain_largest(self) -> Iterator[dict[int, int]]:
        """Yield smaller and smaller plans of the largest buffers: the offset of each by its index.

        Begin with the smallest plan so far. Stop when a plan of all buffers is within one lowering of the bound.
        """
        bound = lower_bound(Problem(tuple(self._buffers)))
        if self._smallest.size <= (enough := bound + bound // _LOWERINGS):
            return
        from etdev.planner.strips.ejection import EjectionChains  # It imports numpy, and few programs need it.

        units = [size // self._unit for size in self._sizes]
        buffers = [Buffer(size, buffer.start, buffer.end, 1) for size, buffer in zip(units, self._buffers, strict=True)]
        indices = _find_largest(buffers)
        largest = [buffers[index] for index in indices]
        least = lower_bound(Problem(tuple(largest)))
        chains = EjectionChains(largest, [self._smallest.offsets[index] // self._unit for index in indices])
        step = max(1, bound // self._unit // _LOWERINGS)
        most_steps = min(_CHAIN_STEPS, _CHAIN_STEPS_PER_PAIR * len(largest) ** 2)
        while self._smallest.size > enough and chains.size > least and step and chains.steps < most_steps:
            end = min(chains.steps + most_steps // _ARENAS, most_steps)
            if chains.fit(max(least, chains.size - step), end):
                yield {index: offset * self._unit for index, offset in zip(indices, chains.offsets, strict=True)}
            else:
                step //= 2


def _find_largest(buffers: Sequence[Buffer]) -> list[int]:
    """Return the indices of the buffers of the largest sizes that need ``_SHARE`` of the lower bound."""
    sizes = sorted({buffer.size for buffer in buffers}, reverse=True)
    needed = _SHARE * lower_bound(Problem(tuple(buffers)))

    def is_enough(least: int) -> bool:
        return lower_bound(Problem(tuple(buffer for buffer in buffers if buffer.size >= least))) >= needed

    least = sizes[bisect_left(sizes, True, key=is_enough)]
    return [index for index, buffer in enumerate(buffers) if buffer.size >= least]


def _place(lifetimes: Sequence[_Lifetime], sizes: Sequence[int], placed: Mapping[int, int]) -> list[int]:
    """Return the offsets of all buffers. ``placed`` has the offsets of those that are placed already."""
    first, never = min(start for start, _ in lifetimes), max(end for _, end in lifetimes) + 1
    strips = _free_strips([(lifetimes[index], low, low + sizes[index]) for index, low in placed.items()], first, never)
    offsets = [placed.get(index, 0) for index in range(len(lifetimes))]
    top = max((low + sizes[index] for index, low in placed.items()), default=0)
    by_size: defaultdict[int, list[int]] = defaultdict(list)
    for index, size in enumerate(sizes):
        if index not in placed:
            by_size[size].append(index)
    for size in sorted(by_size, reverse=True):
        level = _Level(size, strips, (never, -first, top, size))
        for index in sorted(by_size[size], key=lambda index: (lifetimes[index][0], -lifetimes[index][1])):
            offsets[index] = level.place(*lifetimes[index])
        strips, top = level.left(), level.top
    return offsets


def _free_strips(used: Sequence[tuple[_Lifetime, int, int]], first: int, never: int) -> list[_Strip]:
    """Return the strips between buffers, from instant ``first`` to ``never`` and up to the highest buffer.

    ``used`` has the buffers as ``(lifetime, offset, end of the bytes)``.
    """
    heights = sorted({0, *(low for _, low, _ in used), *(high for _, _, high in used)})
    layers: list[list[_Lifetime]] = [[] for _ in heights[1:]]
    for lifetime, low, high in used:
        for layer in range(bisect_left(heights, low), bisect_left(heights, high)):
            layers[layer].append(lifetime)
    strips: list[_Strip] = []
    bottoms: dict[_Lifetime, int] = {}
    """Offsets of the strips that reach up to the current layer, by the instants at which they are free."""
    for bottom, lifetimes in zip(heights, [*layers, [(first, never)]], strict=True):
        ends = [(first, first), *sorted(lifetimes), (never, never)]
        gaps = [(end, start) for (_, end), (start, _) in pairwise(ends) if end < start]
        strips += [
            (end, -begin, low, bottom - low) for (begin, end), low in bottoms.items() if (begin, end) not in gaps
        ]
        bottoms = {gap: bottoms.get(gap, bottom) for gap in gaps}
    return strips


class _Level:
    """Placement of the buffers of one size, in order of their start."""

    def __init__(self, size: int, strips: Iterable[_Strip], above: _Strip) -> None:
        """Begin with the free strips of the arena. ``above`` is a strip above the arena that is always free."""
        self._size = size
        self._above = above
        self._left: list[_Strip] = []
        """Strips that have too few bytes for another buffer, or that end before the next buffer starts."""
        self._free: list[_Strip] = []
        """Strips that are free now, sorted."""
        self._given: list[_Strip] = []
        """Strips that have enough bytes but are not in ``_free`` yet, in descending order of their begin."""
        self._later: list[tuple[int, _Strip]] = []
        """Heap of strips that buffers of this size leave free after them, each as ``(begin, strip)``."""
        for strip in strips:
            (self._given if strip[3] >= size else self._left).append(strip)
        self._given.sort(key=itemgetter(1))

    def place(self, start: int, free_at: int) -> int:
        """Return the offset of a buffer. The buffer must not start before the one that was placed last."""
        self._advance(start)
        place = bisect_left(self._free, (free_at,))
        if place < len(self._free):
            end, begin, offset, height = self._free.pop(place)
        else:
            end, begin, offset, height = self._above
            self._above = (end, begin, offset + self._size, height)
        if height >= 2 * self._size:
            insort(self._free, (end, begin, offset + self._size, height - self._size))
        elif height > self._size:
            self._left.append((end, begin, offset + self._size, height - self._size))
        if -begin < start:
            self._left.append((start, begin, offset, self._size))
        if free_at < end:
            heappush(self._later, (free_at, (end, -free_at, offset, self._size)))
        return offset

    def _advance(self, now: int) -> None:
        while self._given and -self._given[-1][1] <= now:
            strip = self._given.pop()
            if strip[0] > now:
                insort(self._free, strip)
            else:
                self._left.append(strip)
        while self._later and self._later[0][0] <= now:
            insort(self._free, heappop(self._later)[1])
        over = bisect_left(self._free, (now + 1,))
        self._left += self._free[:over]
        del self._free[:over]

    @property
    def top(self) -> int:
        """Size of the arena in bytes."""
        return self._above[2]

    def left(self) -> list[_Strip]:
        """Return all strips that are free in the end."""
        return [*self._left, *self._free, *self._given, *(strip for _, strip in self._later)]
