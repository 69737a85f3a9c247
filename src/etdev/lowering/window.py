"""Estimate of the memory in use around a tiled region."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from etdev.lowering.axes import shape_of
from etdev.lowering.occupancy import Lifetimes, Occupancy, Op, is_run, kind_of
from etdev.lowering.regions import Region

if TYPE_CHECKING:
    from torch.fx import Node


class Window:
    """Estimate of the memory in use in a stretch of a graph, after a region in the stretch is tiled.

    Callers must add ops in the order in which they will run. ``begin`` and ``end`` are the indices of the first and the
    last op of the stretch, which contains the peak.
    """

    def __init__(self, occupancy: Occupancy, begin: int, end: int) -> None:
        self._occupancy, self._begin, self._end = occupancy, begin, end
        self._ops: list[Op] = []
        self._at: dict[int, int] = {}
        """Maps indices of added ops in the graph to their indices in this window."""
        self._homes: dict[int, int] = {}
        """Maps an op that owns memory to that memory: an index in the graph to an index in this window."""
        self._slices: dict[tuple[Node, int, range], int] = {}
        self._opened = 0

    def add_op(self, index: int) -> None:
        """Add an unchanged op of the graph."""
        op, at = self._occupancy.ops[index], self._at
        sources = tuple([at[source] if source in at else self._place(source) for source in op.sources])
        # The method _replace takes three times as long.
        moved = Op(op.kind, sources, op.nbytes, op.is_planned, op.runs_along, op.since, op.workspace)
        at[index] = self._add(moved)

    def add_region(self, region: Region, tile: Mapping[Node, range]) -> None:
        """Add the tiles of a region. The estimate has one tile of each op, because tiles run one after another.

        ``tile`` maps each op to the elements of its output, along the op's axis, that the tile computes. Inputs and
        outputs of the region exist as a whole from the first to the last tile.
        """
        self._opened = len(self._ops)
        self._add(Op("", (), 0))
        outputs = region.outputs
        for node in region.axes:
            self._add_piece(node, region, tile, is_output=node in outputs)
        at = self._occupancy.at
        self._add(Op("", tuple([self._place(at[node]) for node in region.inputs]), 0))
        for node in outputs:
            along = self._is_run(node, region.axes[node])
            size, since = self._occupancy.whole(node), self._opened if along else None
            whole = Op("cat", (self._at[at[node]],), size, runs_along=along, since=since)
            self._at[at[node]] = self._add(whole)

    def _add_piece(self, node: Node, region: Region, tile: Mapping[Node, range], *, is_output: bool) -> None:
        at, sources = self._occupancy.at, []
        for source, axis in region.needs[node].axes.items():
            sources.append(self._place(at[source]) if axis is None else self._part(node, source, region, tile))
        # If tiles cannot be stored in the whole output, all of them exist until they are concatenated.
        kept = is_output and not self._is_run(node, region.axes[node])
        size = region.needs[node].size
        share = self._occupancy.whole(node) * (size if kept else len(tile[node])) // size
        since = self._opened if kept else None
        kind = "kept" if kept else kind_of(node)
        workspace = self._occupancy.workspace(node, region.axes[node], len(tile[node]))
        self._at[at[node]] = self._add(Op(kind, tuple(sources), share, since=since, workspace=workspace))

    def _part(self, node: Node, source: Node, region: Region, tile: Mapping[Node, range]) -> int:
        """Return the index, in this window, of the part of a tiled input that the tile of an op needs."""
        at, axis = self._occupancy.at, region.needs[node].axes[source]
        assert axis is not None
        wanted = region.needs[node].source_range(source, tile[node])
        if tile.get(source) == wanted:
            return self._place(at[source])
        if (source, axis, wanted) not in self._slices:
            planned = source in tile or self._occupancy.ops[at[source]].is_planned
            size = self._occupancy.whole(source) * len(wanted) // region.needs[node].sizes[source]
            part = Op("slice_copy", (self._place(at[source]),), size, planned, self._is_run(source, axis))
            self._slices[source, axis, wanted] = self._add(part)
        return self._slices[source, axis, wanted]

    def _is_run(self, node: Node, axis: int) -> bool:
        known, key = self._occupancy.runs, (node, axis)
        if key not in known:
            known[key] = is_run(shape_of(node) or (), axis)
        return known[key]

    def bytes(self) -> list[int]:
        """Return the bytes in use during each op of the stretch.

        Include tensors that are also in use before or after the stretch.
        """
        end, last_users = self._end, self._occupancy.last_users
        after = [place for index, place in self._at.items() if last_users[index] > end]
        after += [place for home, place in self._homes.items() if self._occupancy.lifetimes.last[home] > end]
        others = self._others()
        found = Lifetimes([*self._ops, Op("", tuple(after), 0)]).bytes[:-1]
        return [size + others for size, op in zip(found, self._ops, strict=True) if op.kind]

    def _others(self) -> int:
        """Return the total bytes of the tensors that exist during the whole stretch, but that no op in it uses."""
        lifetimes, ops = self._occupancy.lifetimes, self._occupancy.ops
        return sum(
            ops[at].nbytes
            for at in self._occupancy.at_peak
            if at not in self._homes and lifetimes.first[at] < self._begin and lifetimes.last[at] > self._end
        )

    def _place(self, index: int) -> int:
        """Return the index, in this window, of the memory that contains an op's output.

        Memory of an output from before the stretch is in use from the start of the stretch.
        """
        if index in self._at:
            return self._at[index]
        home = self._occupancy.lifetimes.home_of(index)
        if home not in self._homes:
            op = self._occupancy.ops[home]
            self._homes[home] = self._add(Op("", (), op.nbytes, op.is_planned, since=0))
        return self._homes[home]

    def _add(self, op: Op) -> int:
        self._ops.append(op)
        return len(self._ops) - 1
