"""Regions of a graph. A region is a set of ops that can be tiled together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from etdev.lowering.axes import VIEWS, Needs, needs, shape_of
from etdev.lowering.occupancy import Occupancy, kind_of

if TYPE_CHECKING:
    from torch.fx import Node

_MOVEMENT = VIEWS | {
    "slice_copy",
    "cat",
    "permute_copy",
    "transpose_copy",
    "expand_copy",
    "_clone_dim_order",
    "select_copy",
    "getitem",
}
"""Ops that only view or move elements."""
REACH = 60
"""Maximum distance, in ops of the graph, between an op of a region and the seed from which the region grows."""


@dataclass(frozen=True)
class Region:
    """Ops that can be tiled together. Each op is tiled along one axis of its output."""

    axes: Mapping[Node, int]
    """Maps each op to the axis along which its output is tiled. The ops are in the order of the graph."""
    needs: Mapping[Node, Needs]
    """Maps each op to the inputs that a tile of the op needs."""
    grains: Mapping[Node, int]
    """Maps each op to the number of equal slices, or *grains*, into which its axis can be cut.

    The number is the same for all ops that are connected without a halo.
    """

    @classmethod
    def of(cls, ops: Iterable[tuple[Node, int, int]]) -> Region:
        """Return a region from its ops, each given as ``(op, axis, number of grains)``, in the order of the graph."""
        every = list(ops)
        found = {node: needs(node, axis) for node, axis, _ in every}
        return cls(
            {node: axis for node, axis, _ in every},
            {node: what for node, what in found.items() if what is not None},
            {node: grains for node, _, grains in every},
        )

    @cached_property
    def most_tiles(self) -> int:
        """Maximum number of tiles."""
        return min((self.grains[node] for node in self.outputs), default=0)

    @cached_property
    def has_halo(self) -> bool:
        """True if tiles of some op overlap."""
        return any(self.needs[node].halo is not None for node in self.axes)

    def own(self, node: Node, number: int, pieces: int) -> range:
        """Return the elements of an op's output that tile ``number`` out of ``pieces`` tiles contributes."""
        grains = self.grains[node]
        rows = self.needs[node].size // grains
        return range(grains * number // pieces * rows, grains * (number + 1) // pieces * rows)

    def tile(self, number: int, pieces: int) -> dict[Node, range] | None:
        """Return the elements that a tile of each op computes, along the op's axis, with halos.

        Return None if a tile would need no elements of an input.
        """
        nodes = self.outputs if self.has_halo else self.axes
        return self._with_halos({node: self.own(node, number, pieces) for node in nodes})

    def largest_tile(self, pieces: int) -> dict[Node, range] | None:
        """Return the elements of the largest tile of each op. The tile is in the middle of the axis.

        Return None if the tile would need no elements of an input.
        """
        if pieces not in self._largest:
            self._largest[pieces] = self._with_halos(self._largest_own(pieces))
        return self._largest[pieces]

    @cached_property
    def _largest(self) -> dict[int, dict[Node, range] | None]:
        """Known results of :meth:`largest_tile`."""
        return {}

    def _largest_own(self, pieces: int) -> dict[Node, range]:
        own = {}
        for node in self.outputs if self.has_halo else self.axes:
            grains = self.grains[node]
            rows, most = self.needs[node].size // grains, -(-grains // pieces)
            begin = (grains - most) // 2 * rows
            own[node] = range(begin, begin + most * rows)
        return own

    def is_possible(self, pieces: int) -> bool:
        """Return False if a tile would need no elements of an input, because the tile consists of padding."""
        pads = any(kind_of(node) == "constant_pad_nd" and self.needs[node].halo is not None for node in self.axes)
        # Padding is at the ends of an axis, so the first or the last tile consists of padding if any tile does.
        return not pads or all(self.tile(number, pieces) is not None for number in (0, pieces - 1))

    def _with_halos(self, own: dict[Node, range]) -> dict[Node, range] | None:
        """Return the elements that a tile of each op computes, with halos.

        ``own`` maps each output of the region to the elements that the tile contributes.
        """
        if not self.has_halo:
            return own
        found: dict[Node, range] = {}
        for node, what, users in self._backwards:
            known = own.get(node)
            begin, end = (what.size, 0) if known is None else (known.start, known.stop)
            for user, needed in users:
                wanted = needed.source_range(node, found[user])
                begin, end = min(begin, wanted.start), max(end, wanted.stop)
            rows = what.size // self.grains[node]
            # An op without users computes one grain.
            begin, end = (begin // rows * rows, -(-end // rows) * rows) if begin < end else (0, rows)
            found[node] = tile = range(begin, end)
            if what.halo is not None and not all(what.source_range(source, tile) for source in what.sizes):
                return None
            if node in self._selected:
                # All outputs of an op have the same tiles.
                found.update((user, tile) for user, _ in users)
        return found

    @cached_property
    def _backwards(self) -> Sequence[tuple[Node, Needs, Sequence[tuple[Node, Needs]]]]:
        """Ops of the region, last one first. Each is ``(op, its needs, its users in the region with their needs)``."""
        needs = self.needs
        return [
            (node, needs[node], [(user, needs[user]) for user in node.users if user in self.axes])
            for node in reversed(list(self.axes))
        ]

    @cached_property
    def outputs(self) -> list[Node]:
        """Ops of the region with users outside the region."""
        return [node for node in self.axes if any(user not in self.axes for user in node.users)]

    @cached_property
    def inputs(self) -> list[Node]:
        """Values that ops of the region use, and that come from outside of the region."""
        every = dict.fromkeys(source for node in self.axes for source in self.needs[node].axes)
        return [source for source in every if source not in self.axes]

    @cached_property
    def cut_products(self) -> int:
        """Number of matrix products in ``bmm`` ops whose tiles cut the matrices. A tile has a part of each product."""
        shapes = [shape_of(node) or [0] for node, axis in self.axes.items() if kind_of(node) == "bmm" and axis > 0]
        return sum(shape[0] for shape in shapes)

    @cached_property
    def neighbours(self) -> Mapping[Node, Set[Node]]:
        """Inputs and users of each op of the region, including nodes outside of the region."""
        return {node: {*self.needs[node].axes, *node.users} for node in self.axes}

    @cached_property
    def _selected(self) -> Set[Node]:
        return {source for _, source in self.selections}

    @cached_property
    def selections(self) -> Sequence[tuple[Node, Node]]:
        """Each op of the region that selects an output of another op, as ``(selecting op, other op)``."""
        return [(node, node.all_input_nodes[0]) for node in self.axes if kind_of(node) == "getitem"]


def grow_region(occupancy: Occupancy, seed: Node, axis: int) -> Region | None:
    """Return the region around ``seed`` for tiling the output of ``seed`` along the axis, or None if there is none."""
    axes: dict[Node, int] = {}
    found: dict[Node, Needs] = {}
    grains = _Grains()
    todo = [(seed, axis)]
    for node, own in todo:
        if node in axes or abs(occupancy.at[node] - occupancy.at[seed]) > REACH:
            continue
        what = _fits(occupancy, node, own, axes, found)
        if what is None or not grains.add(node, what, found):
            continue
        axes[node], found[node] = own, what
        todo += [(source, along) for source, along in what.axes.items() if along is not None]
        todo += [(user, along) for user in node.users for along in _axes_for(occupancy, user, node, own)]
    order = sorted(axes, key=lambda node: occupancy.at[node])
    if seed not in axes:
        return None
    return Region({node: axes[node] for node in order}, found, {node: grains.of(node) for node in order})


class _Grains:
    """Numbers of grains of ops. Ops that are connected without a halo form a group, which has one number."""

    def __init__(self) -> None:
        self._group: dict[Node, list[Node]] = {}
        self._grains: dict[int, int] = {}

    def of(self, node: Node) -> int:
        """Return the number of grains of an op that was added."""
        return self._grains[id(self._group[node])]

    def add(self, node: Node, what: Needs, others: Mapping[Node, Needs]) -> bool:
        """Add an op. Return False and change nothing if its axis and its group's axes have no common grains.

        ``others`` maps each op that was added before to the inputs that its tiles need.
        """
        near = [] if what.halo else [source for source, along in what.axes.items() if along is not None]
        near += [user for user in node.users if user in others and others[user].halo is None]
        groups = {id(group): group for other in near if (group := self._group.get(other)) is not None}
        grains = math.gcd(what.grain, *(self._grains[key] for key in groups))
        if grains < 2:
            return False
        merged = [node, *(other for group in groups.values() for other in group)]
        self._group.update(dict.fromkeys(merged, merged))
        self._grains[id(merged)] = grains
        return True


def known_needs(occupancy: Occupancy, node: Node, axis: int) -> Needs | None:
    """Return the result of :func:`~etdev.lowering.axes.needs` for an op, and record it in ``occupancy.needs``."""
    key = node, axis
    if key not in occupancy.needs:
        occupancy.needs[key] = needs(node, axis)
    found: Needs | None = occupancy.needs[key]
    return found


def _fits(
    occupancy: Occupancy, node: Node, axis: int, axes: Mapping[Node, int], found: Mapping[Node, Needs]
) -> Needs | None:
    """Return the inputs that a tile of an op needs, or None if they contradict the tiling of neighbouring ops."""
    if node.op != "call_function":
        return None
    what = known_needs(occupancy, node, axis)
    if what is None or any(axes.get(source, along) != along for source, along in what.axes.items()):
        return None
    users = (found[user].axes.get(node, axis) for user in node.users if user in found)
    return what if all(along == axis for along in users) else None


def _axes_for(occupancy: Occupancy, user: Node, source: Node, axis: int) -> Iterator[int]:
    """Yield the axes along which ``user`` can be tiled if its input ``source`` is tiled along ``axis``."""
    for own in range(_rank(user)):
        what = known_needs(occupancy, user, own)
        if what is not None and what.axes.get(source, -1) == axis:
            yield own


def _rank(node: Node) -> int:
    found: Any = node.meta.get("val")
    first = found[0] if isinstance(found, (tuple, list)) and found else found
    return len(getattr(first, "shape", ()))


def part_of(whole: Region, chosen: Iterable[Node], seed: Node) -> Region | None:
    """Return the part of a region that has the seed and all chosen ops that are connected to the seed.

    Return None if the seed is not chosen, or if all ops of the part only move elements. Also return None if an op of
    the part selects an output of an op outside the part.
    """
    remaining = set(chosen)
    if seed not in remaining:
        return None
    connected, todo = {seed}, [seed]
    remaining.remove(seed)
    while todo and remaining:
        near = remaining & whole.neighbours[todo.pop()]
        remaining -= near
        connected |= near
        todo += near
    axes = {node: axis for node, axis in whole.axes.items() if node in connected}
    if all(kind_of(node) in _MOVEMENT for node in axes):
        return None
    if any(node in connected and source not in connected for node, source in whole.selections):
        return None
    return Region(axes, whole.needs, whole.grains)  # Numbers of grains of other ops do no harm.
