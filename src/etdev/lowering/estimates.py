"""Estimates of the effect of tilings on the memory around the peak."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from etdev.lowering.axes import is_whole
from etdev.lowering.occupancy import Occupancy
from etdev.lowering.regions import Region
from etdev.lowering.window import Window

if TYPE_CHECKING:
    from torch.fx import Node

PEAK = 0.97
"""An op is at the peak if the bytes in use during the op exceed this fraction of the peak."""
_AFTER = 25
"""Maximum number of ops after a region that an estimate covers. These ops may still use the region's outputs."""
_MOST_REPEATED = 1.25
"""Maximum factor by which the work of a region may increase because tiles overlap."""
_PRODUCTS = 2
"""Number of products of small matrices that take about as long as the start of an op."""
_ALIKE = 1.03
"""Ratio up to which two sizes count as approximately equal."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A region, its number of tiles, and the estimated effect of the tiling."""

    region: Region
    pieces: int
    full: int
    """Number of ops near the region that remain at the current peak (see :data:`PEAK`)."""
    fewer: int
    """Decrease of the number of ops near the region that are at the current peak."""
    peak: int
    """Largest number of bytes in use during an op near the region. Ops that remain at the current peak are ignored."""

    @property
    def added(self) -> int:
        """Number of ops that the tiling adds.

        Slices of inputs do not count, because the link turns most of them into views.
        """
        return (len(self.region.axes) + 1) * (self.pieces - 1)

    def rank(self, goal: int) -> tuple[int, int, int, int]:
        """Return a sort key. The choice with the lowest key is the best.

        The key compares the remaining ops at the peak first, then the peak, then the time of the added ops.
        """
        level = round(math.log(max(self.peak, goal, 1), _ALIKE))
        products = self.region.cut_products * (self.pieces - 1)
        return self.full, -self.fewer if self.full else 0, level, self.added + products // _PRODUCTS


class Figures(NamedTuple):
    """The estimated effect of a tiling, as in the fields of :class:`Choice` with the same names."""

    full: int
    fewer: int
    peak: int


Ops: TypeAlias = tuple[tuple[int, int, int], ...]
"""The ops of a region, each as ``(distance from the peak, axis, number of grains)``.

They are in the order of the graph. Distances count ops.
"""


class Estimates:
    """Estimates of tilings of one graph, by region. Searches from different seeds share the estimates.

    ``known`` and ``overlaps`` have estimates for another graph with equal ops around the peak.
    """

    def __init__(
        self,
        occupancy: Occupancy,
        known: Mapping[Ops, Mapping[int, Figures | None]],
        overlaps: Mapping[Ops, Mapping[int, bool]],
    ) -> None:
        self.occupancy = occupancy
        self.figures = {ops: dict(found) for ops, found in known.items()}
        """Maps ops and a number of tiles to the estimate, or to None if the region cannot be tiled.

        Includes ``known``.
        """
        self.overlaps = {ops: dict(found) for ops, found in overlaps.items()}
        """Maps ops with halos and a number of tiles to the result of :func:`overlaps_little`."""
        self._ops: dict[int, tuple[Region, Ops]] = {}
        """Maps the ``id`` of a region to a pair: the region, and its ops."""
        self._figures: dict[int, dict[int, Figures | None]] = {}
        """Maps the ``id`` of a region to its estimates in :attr:`figures`. Hashes of ops are slow to compute."""
        self.begin = self.end = occupancy.peak_index
        """Indices of the first and the last op on which the estimates depend.

        The last index may be larger than all indices of ops.
        Estimates in ``known`` do not affect these indices.
        """

    def of(self, region: Region, pieces: int) -> Choice | None:
        """Return the tiling of a region with its estimated effect. Return None if the region cannot be tiled."""
        figures = self._figures.get(id(region))
        if figures is None:
            figures = self._figures[id(region)] = self.figures.setdefault(self.ops_of(region), {})
        if pieces not in figures:
            begin, end = _stretch(self.occupancy, region)
            self.begin, self.end = min(self.begin, begin), max(self.end, end)
            figures[pieces] = _estimate(self.occupancy, region, pieces, begin, end)
        found = figures[pieces]
        return None if found is None else Choice(region, pieces, *found)

    def overlaps_little(self, region: Region, pieces: int) -> bool:
        """Return the result of :func:`overlaps_little`."""
        if not region.has_halo:
            return True
        known = self.overlaps.setdefault(self.ops_of(region), {})
        if pieces not in known:
            known[pieces] = overlaps_little(region, pieces)
        return known[pieces]

    def ops_of(self, region: Region) -> Ops:
        """Return the ops of a region, relative to the peak."""
        known = self._ops.get(id(region))
        if known is None:
            at, peak = self.occupancy.at, self.occupancy.peak_index
            ops = tuple([(at[node] - peak, axis, region.grains[node]) for node, axis in region.axes.items()])
            known = self._ops[id(region)] = region, ops
        return known[1]


def _stretch(occupancy: Occupancy, region: Region) -> tuple[int, int]:
    """Return the indices of the first and the last op that the estimate for a tiled region covers."""
    at, lifetimes, highest = occupancy.at, occupancy.lifetimes, occupancy.peak_index
    nodes = list(region.axes)
    last = at[nodes[-1]]
    used = max((lifetimes.last[lifetimes.home_of(at[node])] for node in region.outputs), default=last)
    return min(at[nodes[0]], highest), max(highest, min(used, last + _AFTER))


def _estimate(occupancy: Occupancy, region: Region, pieces: int, begin: int, end: int) -> Figures | None:
    """Estimate the memory in use from op ``begin`` to op ``end`` if a region between them is tiled.

    ``pieces`` is the number of tiles. The estimate assumes that all tiles run at the position of the region's last op.
    Of each op, it counts the memory of one tile, because tiles run one after another. Outputs of the region also count
    as a whole. Return None if the region cannot be tiled.
    """
    at, lifetimes, outputs = occupancy.at, occupancy.lifetimes, region.outputs
    inside = {at[node] for node in region.axes}
    last = max(inside)
    others = [index for index in range(begin, min(end + 1, len(occupancy.nodes))) if index not in inside]
    first = [index for index in others if index < last]
    if not outputs or not all(map(is_whole, outputs)) or _are_dependent(occupancy, first, inside):
        return None
    tile = region.largest_tile(pieces)
    if tile is None or not overlaps_little(region, pieces, tile) or not region.is_possible(pieces):
        return None
    window = Window(occupancy, begin, end)
    for index in first:
        window.add_op(index)
    window.add_region(region, tile)
    for index in others[len(first) :]:
        window.add_op(index)
    limit = PEAK * lifetimes.bytes[occupancy.peak_index]
    after = window.bytes()
    full = sum(size > limit for size in after)
    fewer = sum(size > limit for size in lifetimes.bytes[begin : end + 1]) - full
    return Figures(full, fewer, max((size for size in after if size <= limit), default=0))


def overlaps_little(region: Region, pieces: int, tile: Mapping[Node, range] | None = None) -> bool:
    """Return whether overlaps add little work to a region. Each tile counts as if it were the largest tile.

    If overlaps add too much work, they usually also do so with more tiles and with more ops. ``tile`` is the region's
    largest tile, if it is known.
    """
    if not region.has_halo:
        return True
    tile = tile or region.largest_tile(pieces)
    if tile is None:
        return False
    needs = [region.needs[node] for node in region.axes]
    after = sum(what.work * len(tile[node]) * pieces / what.size for node, what in zip(region.axes, needs, strict=True))
    return after <= _MOST_REPEATED * sum(what.work for what in needs)


def _are_dependent(occupancy: Occupancy, others: Iterable[int], inside: Set[int]) -> bool:
    """Return whether an op in ``others`` uses the output of an op in ``inside``, or may change its own inputs.

    Both arguments contain indices of ops.
    """
    ops, nodes = occupancy.ops, occupancy.nodes
    return any(_may_change_inputs(nodes[index].target) or not inside.isdisjoint(ops[index].sources) for index in others)


@cache
def _may_change_inputs(target: Any) -> bool:
    return "auto_functionalized" in str(target)
