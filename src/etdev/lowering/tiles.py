"""Rewriting of a region: each op becomes its tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etdev.lowering.axes import VIEWS, piece_arguments, shape_of
from etdev.lowering.graph import Editor, arguments
from etdev.lowering.halos import Halo
from etdev.lowering.occupancy import kind_of
from etdev.lowering.regions import Region

if TYPE_CHECKING:
    from torch.fx import Node


def rewrite_region(editor: Editor, region: Region, pieces: int) -> None:
    """Replace each op of a region by its tiles. ``pieces`` is the number of tiles of each op."""
    nodes, outputs = list(region.axes), region.outputs
    made: dict[Node, list[Node]] = {node: [] for node in outputs}
    for number in range(pieces):
        piece = _Piece(editor, region, number, pieces)
        for node in nodes:
            with editor.before(nodes[-1], line=node):
                piece.make(node)
                if node in made:
                    made[node].append(piece.part(node, region.axes[node], region.own(node, number, pieces)))
    for node in outputs:
        with editor.before(nodes[-1], line=node):
            whole = editor.call("cat.default", made[node], region.axes[node])
        editor.redirect(node, whole, region.axes)
    for node in reversed(nodes):
        editor.graph.erase_node(node)


class _Piece:
    """Tile ``number`` of each op of a region. ``pieces`` is the number of tiles of each op."""

    def __init__(self, editor: Editor, region: Region, number: int, pieces: int) -> None:
        ranges = region.tile(number, pieces)
        assert ranges is not None
        self._editor, self._region, self._ranges = editor, region, ranges
        self._made: dict[Node, Node] = {}
        self._slices: dict[tuple[Node, int, range], Node] = {}

    def make(self, node: Node) -> None:
        """Insert the tile of an op. The tiles of the op's inputs must exist."""
        from torch.fx.node import map_arg

        tile, what, axis = self._ranges[node], self._region.needs[node], self._region.axes[node]

        def piece(source: Node) -> Node:
            own = what.axes[source]
            return source if own is None else self._input(node, source, own, what.halo)

        given: tuple[Any, ...] = map_arg(arguments(node), piece)
        kwargs = map_arg(dict(node.kwargs), piece)
        changed = piece_arguments(node, axis, what.halo, tile, given)
        target = "view_copy.default" if kind_of(node) in VIEWS else node.target
        self._made[node] = self._editor.call(target, *changed, **kwargs)

    def part(self, source: Node, axis: int, wanted: range) -> Node:
        """Return the elements ``wanted`` of an op's tile, or of an input, along an axis. The op's tile must exist."""
        shape = shape_of(source)
        assert shape is not None
        whole, there = self._made.get(source, source), self._ranges.get(source, range(shape[axis]))
        if wanted == there:
            return whole
        if (source, axis, wanted) not in self._slices:
            begin, end = wanted.start - there.start, wanted.stop - there.start
            self._slices[source, axis, wanted] = self._editor.slice(whole, axis, begin, end)
        return self._slices[source, axis, wanted]

    def _input(self, node: Node, source: Node, axis: int, halo: Halo | None) -> Node:
        """Return the elements of an input that the tile of an op needs. Pad them if the op is a convolution or pooling.

        A tile at the border of an image needs padding on one side only.
        """
        shape, tile = shape_of(source), self._ranges[node]
        assert shape is not None
        found = self.part(source, axis, self._region.needs[node].source_range(source, tile))
        amounts = (0, 0) if halo is None else halo.missing(tile, shape[axis])
        if halo is None or not any(amounts) or kind_of(node) == "constant_pad_nd":
            return found
        inner = [0, 0] * (len(shape) - 1 - axis)
        return self._editor.call("constant_pad_nd.default", found, [*inner, *amounts], halo.fill)
