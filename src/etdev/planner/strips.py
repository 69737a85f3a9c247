"""Placement of buffers of few different sizes, in strips.

A *strip* is a range of bytes that is free during a range of instants. Sizes are placed in descending order. For each
size, the buffers are placed in order of their start. A buffer goes to the bottom of a strip that has room for it. Of
several such strips, it takes the one that is in use again first. Of strips that stay free without end, it takes the one
that was in use last. If no strip has room, the arena grows. The rest of the strip remains free for smaller buffers:
above the buffer, before it and after it.

So buffers of one size use the same bytes in turn, and smaller buffers fill the gaps. With thousands of buffers in use
at once, the plans are often close to the lower bound. Finding them is much faster than looking for a gap for each
buffer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import TypeAlias

from etdev.planner.problem import Buffer

_MOST_SIZES = 128
"""Largest number of different sizes. For each size, the planner visits all strips."""
_MOST_VISITS = 12_000_000
"""Largest product of the number of buffers and the number of sizes: about 20 seconds."""
_PADDED = 1.05
"""Largest factor by which alignment may increase the sizes of all buffers together."""

_Strip: TypeAlias = tuple[int, int, int, int]
"""``(end, -begin, offset, height)``: ``height`` bytes from ``offset`` are free from instant ``begin`` to ``end``.

So strips sort by their end. Among strips with equal ends, the one with the last begin is the first.
"""


def place_in_strips(buffers: Sequence[Buffer]) -> list[int] | None:
    """Return the offsets of all buffers, placed in strips.

    Return None if a buffer has a pin, if there are too many sizes, or if alignment adds too much padding.
    """
    unit = max(buffer.alignment for buffer in buffers)
    by_size: defaultdict[int, list[int]] = defaultdict(list)
    for index, buffer in enumerate(buffers):
        by_size[-(-buffer.size // unit) * unit].append(index)
    padded = sum(size * len(indices) for size, indices in by_size.items())
    has_pins = any(buffer.pin is not None for buffer in buffers)
    is_large = len(by_size) > _MOST_SIZES or len(buffers) * len(by_size) > _MOST_VISITS
    if has_pins or is_large or padded > _PADDED * sum(buffer.size for buffer in buffers):
        return None
    first, never = min(buffer.start for buffer in buffers), max(buffer.end for buffer in buffers) + 1
    strips: list[_Strip] = []
    offsets = [0] * len(buffers)
    top = 0
    for size in sorted(by_size, reverse=True):
        level = _Level(size, strips, (never, -first, top, size))
        for index in sorted(by_size[size], key=lambda index: (buffers[index].start, -buffers[index].end)):
            offsets[index] = level.place(buffers[index])
        strips, top = level.left(), level.top
    return offsets


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

    def place(self, buffer: Buffer) -> int:
        """Return the offset of a buffer. The buffer must not start before the one that was placed last."""
        self._advance(buffer.start)
        place = bisect_left(self._free, (buffer.end,))
        if place < len(self._free):
            end, begin, offset, height = self._free.pop(place)
        else:
            end, begin, offset, height = self._above
            self._above = (end, begin, offset + self._size, height)
        if height >= 2 * self._size:
            insort(self._free, (end, begin, offset + self._size, height - self._size))
        elif height > self._size:
            self._left.append((end, begin, offset + self._size, height - self._size))
        if -begin < buffer.start:
            self._left.append((buffer.start, begin, offset, self._size))
        if buffer.end < end:
            heappush(self._later, (buffer.end, (end, -buffer.end, offset, self._size)))
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
