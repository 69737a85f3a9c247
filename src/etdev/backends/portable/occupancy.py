"""How much memory a graph has in use, before anything is planned: what a faster form of an op may use beside it.

It is an estimate. Outputs of views lie in their input. As the linker will have it, outputs of element-wise ops lie in
an input that nobody needs any more, and what is concatenated lies at its place from the start.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Graph, Node

_VIEWS = frozenset({"view_copy", "unsqueeze_copy", "squeeze_copy", "alias_copy", "_clone_dim_order", "getitem"})
_IN_PLACE = frozenset(
    {"add", "sub", "mul", "div", "relu", "hardtanh", "sigmoid", "gelu", "exp", "tanh", "clamp", "sqrt", "pow", "neg"}
    | {
        "_softmax",
        "native_layer_norm",
        "native_group_norm",
        "_native_batch_norm_legit_no_training",
        "where",
        "elu",
        "maximum",
    }
)


class Occupancy:
    """Bytes in use while each op of a graph runs, its inputs and outputs included.

    ``constants`` are placeholders that need no memory: weights, and what lies elsewhere. ``linked`` is false for what
    ExecuTorch makes of the graph, true for what the linker makes of it.
    """

    def __init__(self, graph: Graph, constants: Container[str], *, linked: bool = True) -> None:
        self._linked = linked
        nodes = list(graph.nodes)
        self._at = {node: index for index, node in enumerate(nodes)}
        self._planned = {node for node in nodes if _is_planned(node, constants)}
        self._home: dict[Node, Node] = {}
        """The node whose memory a node's output lies in; a home's own home is itself."""
        self._first = dict(self._at)
        self._last = {node: max((self._at[user] for user in node.users), default=self._at[node]) for node in nodes}
        for node in nodes:
            self._settle(node)
        change = [0] * (len(nodes) + 1)
        for node in self._planned:
            if self._home[node] is node:
                change[self._first[node]] += nbytes(node)
                change[self._last[node] + 1] -= nbytes(node)
        self._bytes = list(accumulate(change[:-1]))

    def _settle(self, node: Node) -> None:
        """Find the home of a node's output, or let its inputs' homes be in it."""
        self._home[node] = home = self._shared(node)
        self._last[home] = max(self._last[home], self._last[node])
        is_joined = self._linked and _kind(node) == "cat" and _runs_along(node)
        for source in node.all_input_nodes if is_joined else ():
            part = self._home_of(source)
            if part in self._planned and part.op == "call_function" and self._last[part] <= self._at[node]:
                self._home[part] = node
                self._first[node] = min(self._first[node], self._first[part])

    def _shared(self, node: Node) -> Node:
        is_view = _kind(node) in _VIEWS or (self._linked and _kind(node) == "slice_copy" and _runs_along(node))
        is_shared = is_view or (self._linked and _kind(node) in _IN_PLACE)
        for source in node.all_input_nodes if is_shared else ():
            home = self._home_of(source)
            is_last = self._last[home] <= self._at[node]
            if home in self._planned and (is_view or (is_last and nbytes(home) == nbytes(node))):
                return home
        return node

    def _home_of(self, node: Node) -> Node:
        while self._home[node] is not node:
            node = self._home[node]
        return node

    def during(self, node: Node) -> int:
        """Bytes in use while this op runs."""
        return self._bytes[self._at[node]]

    def ends_at(self, value: Node, node: Node) -> bool:
        """Is the memory of a value free after this op? A constant takes none that could be."""
        home = self._home_of(value)
        return home in self._planned and self._last[home] <= self._at[node]

    def peak(self, without: Container[Node] = ()) -> int:
        """The most bytes in use at a time while any other op runs than these."""
        return max((self._bytes[at] for node, at in self._at.items() if node not in without), default=0)


def nbytes(node: Node) -> int:
    """Bytes of a node's tensors; what is not known counts nothing."""
    value = node.meta.get("val")
    return sum(_tensor_bytes(item) for item in (value if isinstance(value, (tuple, list)) else [value]))


def _runs_along(node: Node) -> bool:
    """Does a slice, or a part of a concatenation, fill one run of the whole's bytes?"""
    dim: Any = node.args[1] if len(node.args) > 1 else 0
    shape = node.all_input_nodes[0].meta["val"].shape
    return all(size == 1 for size in shape[: dim % len(shape)])


def _is_planned(node: Node, constants: Container[str]) -> bool:
    return node.op == "call_function" or (node.op == "placeholder" and node.name not in constants)


def _tensor_bytes(value: Any) -> int:
    import torch

    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        return 0
    return value.numel() * value.element_size()


def _kind(node: Node) -> str:
    """``add`` of ``aten.add.Tensor``."""
    parts = str(getattr(node.target, "__name__", node.target)).split(".")
    return parts[1] if len(parts) > 1 else parts[0]
