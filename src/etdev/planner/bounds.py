"""A lower bound on the size of a plan."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from etdev.planner.problem import Buffer, Problem


def lower_bound(problem: Problem) -> int:
    """Return a number of bytes that every plan of the problem needs; O(n log n) per distinct alignment.

    The bound is the largest of several numbers: the ends of pinned buffers, and one sum for each pair of an alignment A
    and an instant. The sum covers each buffer that is in use at the instant and has an alignment of A or more. The
    offsets of these buffers are multiples of A, so each buffer occupies its size rounded up to a multiple of A. Only
    the topmost buffer does not need that padding. Since that buffer is unknown, the sum omits the largest padding.
    """
    pinned = (b.pin + b.size for b in problem.buffers if b.pin is not None and b.start < b.end)
    bound = max(pinned, default=0)
    active = [buffer for buffer in problem.buffers if buffer.occupies]
    for alignment in sorted({buffer.alignment for buffer in active}):
        bound = max(bound, _peak([buffer for buffer in active if buffer.alignment >= alignment], alignment))
    return bound


def _peak(buffers: Sequence[Buffer], alignment: int) -> int:
    """Return the largest sum of rounded sizes at any instant. Each sum omits its largest padding."""
    by_start = sorted(range(len(buffers)), key=lambda index: buffers[index].start)
    by_end = sorted(range(len(buffers)), key=lambda index: buffers[index].end)
    roundings: list[tuple[int, int]] = []  # A heap of (-rounding, end), largest rounding first; some have ended.
    peak = live = ended = 0
    for index in by_start:
        buffer = buffers[index]
        while buffers[by_end[ended]].end <= buffer.start:
            live -= _round_up(buffers[by_end[ended]].size, alignment)
            ended += 1
        while roundings and roundings[0][1] <= buffer.start:
            heapq.heappop(roundings)
        rounded = _round_up(buffer.size, alignment)
        live += rounded
        heapq.heappush(roundings, (buffer.size - rounded, buffer.end))
        peak = max(peak, live + roundings[0][0])
    return peak


def _round_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
