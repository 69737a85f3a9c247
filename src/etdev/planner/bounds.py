"""How small a plan can be at most."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from etdev.planner.problem import Buffer, Problem


def lower_bound(problem: Problem) -> int:
    """Bytes that no plan of the problem goes below; O(n log n) for each alignment that occurs.

    It is the largest of: the end of each pinned buffer; and, for each alignment A and each instant, what the buffers
    that are in use then and have alignment A or more need for themselves. Those lie at multiples of A, so each keeps
    the others off its size rounded up to a multiple of A; only the topmost one does not need the bytes that it is
    rounded up by, and which one that is is not known.
    """
    pinned = (b.pin + b.size for b in problem.buffers if b.pin is not None and b.start < b.end)
    bound = max(pinned, default=0)
    active = [buffer for buffer in problem.buffers if buffer.occupies]
    for alignment in sorted({buffer.alignment for buffer in active}):
        bound = max(bound, _peak([buffer for buffer in active if buffer.alignment >= alignment], alignment))
    return bound


def _peak(buffers: Sequence[Buffer], alignment: int) -> int:
    """Largest sum over the instants of sizes rounded up, without the largest rounding."""
    by_start = sorted(range(len(buffers)), key=lambda index: buffers[index].start)
    by_end = sorted(range(len(buffers)), key=lambda index: buffers[index].end)
    roundings: list[tuple[int, int]] = []  # A heap, largest first, of (-rounding, end), with some that have ended.
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
