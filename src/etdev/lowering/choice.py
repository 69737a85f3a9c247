"""Choice of the ops of a region to tile, and of the number of tiles."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from etdev.lowering.estimates import Choice, Estimates
from etdev.lowering.regions import Region, part_of

if TYPE_CHECKING:
    from torch.fx import Node

_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Possible numbers of tiles of a region."""
_WORTH = 0.97
"""A larger number of tiles is used if its peak is below this fraction of a smaller number's peak.

It is also used if only the larger number reaches the goal, or leaves fewer ops at the peak.
"""
_LEAST_BYTES = 1_024
"""Minimum size in bytes of each tile of a region's largest output."""


def choose(estimates: Estimates, whole: Region, seed: Node, goal: int) -> Choice | None:
    """Return the best tiling of a part of the region ``whole``, or None if there is none.

    The part includes ``seed``. Its ops are neighbours in the order of the graph.
    """
    order = list(whole.axes)
    first = last = at = order.index(seed)
    most = max(_counts(estimates, whole), default=2)

    @cache
    def part(begin: int, end: int) -> Region | None:
        return part_of(whole, order[begin : end + 1], seed)

    @cache
    def cost(begin: int, end: int) -> tuple[float, ...]:
        found = part(begin, end)
        choice = None if found is None else _finest(estimates, found, most)
        return (math.inf,) if choice is None else choice.rank(goal)

    for _ in range(2):
        begins = _possible(estimates, ((begin, part(begin, last)) for begin in reversed(range(at + 1))))
        first = min(reversed(begins), key=lambda begin: cost(begin, last))
        ends = _possible(estimates, ((end, part(first, end)) for end in range(at, len(order))))
        last = min(ends, key=lambda end: cost(first, end))
    found = part(first, last)
    return None if found is None else _fewest(estimates, found, goal)


def _possible(estimates: Estimates, parts: Iterable[tuple[int, Region | None]]) -> list[int]:
    """Return the keys of the given parts, up to and including the first part whose tiles overlap too much.

    Each part must contain the part before it.
    """
    found = []
    for key, part in parts:
        found.append(key)
        if part is not None and not estimates.overlaps_little(part, 2):
            break
    return found


def _finest(estimates: Estimates, region: Region, most: int) -> Choice | None:
    """Return the choice with ``most`` tiles. If tiles overlap, use the largest possible number up to ``most``.

    A number of tiles is possible if they do not overlap too much. Return None if there is no choice.
    """
    if not region.has_halo:
        return estimates.of(region, most)
    counts = [count for count in _counts(estimates, region) if count <= most]
    possible = bisect_left(counts, x=True, key=lambda count: not estimates.overlaps_little(region, count))
    found = (estimates.of(region, count) for count in reversed(counts[:possible]))
    return next((choice for choice in found if choice is not None), None)


def _counts(estimates: Estimates, region: Region) -> list[int]:
    """Return the numbers of tiles to try for a region, in ascending order."""
    largest, grains = max(map(estimates.occupancy.whole, region.axes)), region.most_tiles
    found = [count for count in _COUNTS if count <= grains and largest >= count * _LEAST_BYTES] or [2]
    # More tiles than these do not make the largest tile smaller.
    return sorted({-(-grains // -(-grains // count)) for count in found}) if grains > 1 else []


def _fewest(estimates: Estimates, region: Region, goal: int) -> Choice | None:
    """Return the choice with the fewest tiles that reaches the goal, or comes close to the best choice.

    Return None if the region cannot be tiled.
    """
    best: Choice | None = None
    for count in _counts(estimates, region):
        found = estimates.of(region, count)
        if found is None:
            continue
        if best is None or found.full < best.full or found.peak < _WORTH * best.peak or found.peak <= goal < best.peak:
            best = found
        if best.full == 0 and best.peak <= goal:
            break
    return best
