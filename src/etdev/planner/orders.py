"""Orders in which buffers are placed, and rules for the offsets of the buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from etdev.planner.fit import Fit, best_fit, first_fit
from etdev.planner.occupancy import Timeline
from etdev.planner.problem import Buffer

Key = Callable[[Buffer, int], tuple[int, ...]]
"""Function that returns a buffer's sort key. It takes the buffer, and the peak bytes in use during its lifetime."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to place buffers one after another."""

    key: Key
    fit: Fit


def _by_size(buffer: Buffer, crowd: int) -> tuple[int, ...]:
    return (-buffer.size, buffer.start - buffer.end, buffer.start)


def _by_size_class(buffer: Buffer, crowd: int) -> tuple[int, ...]:
    return (-buffer.size.bit_length(), buffer.start, -buffer.size)


def _by_area(buffer: Buffer, crowd: int) -> tuple[int, ...]:
    return (-buffer.size * (buffer.end - buffer.start), buffer.start)


def _by_start(buffer: Buffer, crowd: int) -> tuple[int, ...]:
    return (buffer.start, -buffer.size)


def _by_end(buffer: Buffer, crowd: int) -> tuple[int, ...]:
    return (-buffer.end, -buffer.size)


def _by_crowd(buffer: Buffer, crowd: int) -> tuple[int, ...]:
    return (-crowd, buffer.start - buffer.end, -buffer.size, buffer.start)


STRATEGIES = (
    Strategy(_by_size, first_fit),
    Strategy(_by_size_class, first_fit),
    Strategy(_by_crowd, best_fit),
    Strategy(_by_size, best_fit),
    Strategy(_by_area, first_fit),
    Strategy(_by_start, best_fit),
    Strategy(_by_start, first_fit),
    Strategy(_by_end, best_fit),
)
"""All strategies. The first strategy meets the lower bound most often.

The second strategy places buffers of about the same size in order of their start. Its plans are the smallest if
thousands of buffers are in use at once. In these plans, buffers of about the same size use the same bytes in turn.
"""


def order_buffers(buffers: Sequence[Buffer], indices: Sequence[int], crowds: Sequence[int], key: Key) -> list[int]:
    """Return the indices sorted by the key. Buffers with equal keys keep their order."""
    return sorted(indices, key=lambda index: key(buffers[index], crowds[index]))


def find_crowds(buffers: Sequence[Buffer], timeline: Timeline) -> list[int]:
    """Return, for each buffer, the peak number of bytes in use during its lifetime, or 0 if it is never in use."""
    changes = [0] * (timeline.ranks + 1)
    for buffer, (first, last) in zip(buffers, timeline.ranges, strict=True):
        changes[first] += buffer.size
        changes[last] -= buffer.size
    peaks = _Peaks(changes)
    return [peaks.find(first, last) for first, last in timeline.ranges]


class _Peaks:
    """Binary tree that finds the peak in any range of ranks. A rank is the position of a start instant."""

    def __init__(self, changes: Sequence[int]) -> None:
        self._leaves = len(changes)
        live = 0
        self._tree = [0] * (2 * self._leaves)
        for rank, change in enumerate(changes):
            live += change
            self._tree[self._leaves + rank] = live
        for node in range(self._leaves - 1, 0, -1):
            self._tree[node] = max(self._tree[2 * node], self._tree[2 * node + 1])

    def find(self, first: int, last: int) -> int:
        """Return the largest number of bytes in use in the half-open range of ranks."""
        low, high = first + self._leaves, last + self._leaves
        peak = 0
        while low < high:
            if low & 1:
                peak = max(peak, self._tree[low])
                low += 1
            if high & 1:
                high -= 1
                peak = max(peak, self._tree[high])
            low >>= 1
            high >>= 1
        return peak
