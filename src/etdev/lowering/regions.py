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
    grains: int
    """Number of equal slices into which all axes can be cut. This is the maximum number of tiles."""

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
        """Number of matrix products in batches whose matrices are tiled. Each tile computes all these products."""
        shapes = [shape_of(node) or () for node, axis in self.axes.items() if kind_of(node) == "bmm" and axis > 0]
        return sum(shape[0] for shape in shapes)

    @cached_property
    def neighbours(self) -> Mapping[Node, Set[Node]]:
        """Inputs and users of each op of the region, including nodes outside of the region."""
        return {node: {*self.needs[node].axes, *node.users} for node in self.axes}

    @cached_property
    def selections(self) -> Sequence[tuple[Node, Node]]:
        """Each op of the region that selects an output of another op, as ``(selecting op, other op)``."""
        return [(node, node.all_input_nodes[0]) for node in self.axes if kind_of(node) == "getitem"]


def grow_region(occupancy: Occupancy, seed: Node, axis: int) -> Region | None:
    """Return the region around ``seed`` for tiling the output of ``seed`` along the axis, or None if there is none."""
    axes: dict[Node, int] = {}
    found: dict[Node, Needs] = {}
    grains = (shape_of(seed) or [0])[axis]
    todo = [(seed, axis)]
    for node, own in todo:
        if node in axes or abs(occupancy.at[node] - occupancy.at[seed]) > REACH:
            continue
        what = _fits(occupancy, node, own, axes, found)
        if what is None or math.gcd(grains, what.grain) < 2:
            continue
        grains = math.gcd(grains, what.grain)
        axes[node], found[node] = own, what
        todo += [(source, along) for source, along in what.axes.items() if along is not None]
        todo += [(user, along) for user in node.users for along in _axes_for(occupancy, user, node, own)]
    order = sorted(axes, key=lambda node: occupancy.at[node])
    return Region({node: axes[node] for node in order}, found, grains) if seed in axes else None


def _needs(occupancy: Occupancy, node: Node, axis: int) -> Needs | None:
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
    what = _needs(occupancy, node, axis)
    if what is None or any(axes.get(source, along) != along for source, along in what.axes.items()):
        return None
    users = (found[user].axes.get(node, axis) for user in node.users if user in found)
    return what if all(along == axis for along in users) else None


def _axes_for(occupancy: Occupancy, user: Node, source: Node, axis: int) -> Iterator[int]:
    """Yield the axes along which ``user`` can be tiled if its input ``source`` is tiled along ``axis``."""
    for own in range(_rank(user)):
        what = _needs(occupancy, user, own)
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
    return Region(axes, whole.needs, whole.grains)
