"""Rules that choose the offset of a buffer between ranges in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable

Fit = Callable[[Iterable[tuple[int, int]], int, int], int]
"""Function that returns an offset for a buffer, from the sorted ranges in use, its size and its alignment.

All numbers are in bytes. The ranges may overlap.
"""


def first_fit(used: Iterable[tuple[int, int]], size: int, alignment: int) -> int:
    """Return the lowest offset at which enough bytes are free."""
    mask = alignment - 1
    offset = 0
    for begin, end in used:
        if begin - offset >= size:
            break
        if end > offset:
            offset = (end + mask) & ~mask
    return offset


def best_fit(used: Iterable[tuple[int, int]], size: int, alignment: int) -> int:
    """Return the offset of the smallest gap that is large enough. Of equal gaps, use the lowest.

    If no gap is large enough, return the lowest offset above all ranges.
    """
    mask = alignment - 1
    offset, smallest, chosen = 0, None, 0
    for begin, end in used:
        gap = begin - offset
        if gap >= size and (smallest is None or gap < smallest):
            smallest, chosen = gap, offset
        if end > offset:
            offset = (end + mask) & ~mask
    return offset if smallest is None else chosen
