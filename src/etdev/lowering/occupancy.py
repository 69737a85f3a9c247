"""Estimate of the memory that a graph uses, made before planning.

The estimate decides which rewritten forms of an op fit.

The estimate is for the linked program. A view shares the bytes of its input. The output of an element-wise op reuses
the bytes of an input that no later op needs. The parts of a concatenation are stored directly in its output.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from etdev.program.analysis.inplace import DEFAULT

if TYPE_CHECKING:
    from torch.fx import Graph, Node

_VIEWS = frozenset({"view_copy", "unsqueeze_copy", "squeeze_copy", "alias_copy", "_clone_dim_order", "getitem"})
_MOVES = frozenset({"expand_copy", "permute_copy", "transpose_copy"})
"""Ops that the estimate treats as views if they leave the elements in the same order."""
_POOLING = "max_pool2d_with_indices"
_IN_PLACE = frozenset(name.partition("::")[2].partition(".")[0] for name in DEFAULT)
_SHARING = _VIEWS | _IN_PLACE | {"cat", "slice_copy"}
"""Ops whose output may share the memory of other tensors."""


class Op(NamedTuple):
    """Facts about an op that matter for memory."""

    kind: str
    """Name such as ``add`` for ``aten.add.Tensor``. Empty for a value that no op computes, such as an input."""
    sources: tuple[int, ...]
    """Indices of the earlier ops whose outputs this op needs."""
    nbytes: int
    """Number of bytes of the op's output."""
    is_planned: bool = True
    """False if the output is a constant, or if its memory is planned elsewhere."""
    runs_along: bool = True
    """True if a slice, or each part of a concatenation, is one contiguous run of bytes in the whole tensor."""
    since: int | None = None
    """Index of the op at which the output's memory begins to be in use. None means this op itself."""
    workspace: int = 0
    """Number of bytes in use only during the op, besides the bytes of its inputs and its output."""


class Lifetimes:
    """Number of bytes in use after the link while each op of a sequence runs. Inputs and outputs count."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = ops
        self.home = list(range(len(ops)))
        """For each op, the index of its home: the op whose memory contains the output."""
        self.first = [at if op.since is None else op.since for at, op in enumerate(ops)]
        """For each op that owns memory, the index of the first op during which this memory is in use."""
        self.last = list(range(len(ops)))
        """For each op that owns memory, the index of the last op during which this memory is in use."""
        for at, op in enumerate(ops):
            for source in op.sources:
                self.last[source] = at
        for at, op in enumerate(ops):
            if op.kind in _SHARING and op.sources:
                self._settle(at, op)
        change = [0] * (len(ops) + 1)
        for at, op in enumerate(ops):
            if op.is_planned and self.home[at] == at:
                change[self.first[at]] += op.nbytes
                change[self.last[at] + 1] -= op.nbytes
        self.bytes = [size + op.workspace for size, op in zip(accumulate(change[:-1]), ops, strict=True)]
        """Number of bytes in use during each op."""

    def _settle(self, at: int, op: Op) -> None:
        """Find the op whose memory contains the output of op ``at``. Op ``at`` must have sources.

        If ``at`` is a concatenation whose output can contain the parts directly, the parts use that output's memory.
        """
        kind = op.kind
        if kind == "cat" and op.runs_along:
            for source in op.sources:
                part = self.home_of(source)
                if self._ops[part].is_planned and self._ops[part].kind and self.last[part] <= at:
                    self.home[part] = at
                    self.first[at] = min(self.first[at], self.first[part])
            return
        is_view = kind in _VIEWS or (kind == "slice_copy" and op.runs_along)
        if is_view or kind in _IN_PLACE:
            home = self._shared(at, op, is_view=is_view)
            if home is not None:
                self.home[at] = home
                self.last[home] = max(self.last[home], self.last[at])
                self.first[home] = min(self.first[home], self.first[at])

    def _shared(self, at: int, op: Op, *, is_view: bool) -> int | None:
        """Return an op whose memory the output of ``at`` can share with a source of ``at``, or None."""
        for source in op.sources:
            home = self.home_of(source)
            found = self._ops[home]
            if found.is_planned and (is_view or (self.last[home] <= at and found.nbytes == op.nbytes)):
                return home
        return None

    def homes_during(self, at: int) -> list[int]:
        """Return the ops whose own memory is in use while op ``at`` runs."""
        every = (home for home, op in enumerate(self._ops) if op.is_planned and self.home[home] == home)
        return [home for home in every if self.first[home] <= at <= self.last[home]]

    def home_of(self, at: int) -> int:
        """Return the op whose memory contains the output of op ``at``."""
        while self.home[at] != at:
            at = self.home[at]
        return at


class Workspace(Protocol):
    """A function that returns the bytes that an op needs besides its inputs and its output."""

    def __call__(self, node: Node, axis: int = 0, size: int | None = None) -> int:
        """Return the bytes for an op, or for a tile of ``size`` elements along an axis of the op's output."""


def _no_workspace(node: Node, axis: int = 0, size: int | None = None) -> int:
    return 0


class Occupancy:
    """Number of bytes in use during each op of a graph. Inputs and outputs count.

    ``constants`` contains the names of placeholders without planned memory here: weights, and tensors that are stored
    elsewhere. The figures are for the memory after the link.
    """

    def __init__(
        self,
        graph: Graph,
        constants: Container[str],
        *,
        before: Occupancy | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        """Estimate the memory of a graph.

        ``before`` is an estimate of the same graph before a tiling. It saves time. ``workspace`` returns the bytes that
        an op needs besides its inputs and its output; None means that no op needs any.
        """
        self.workspace: Workspace = _no_workspace if workspace is None else cache(workspace)
        """Returns the bytes that an op, or a tile of an op, needs besides its inputs and its output."""
        self.nodes = list(graph.nodes)
        self.at = {node: index for index, node in enumerate(self.nodes)}
        known = {} if before is None else self._moved(before)
        self.ops = [known.get(node) or self._op(node, constants) for node in self.nodes]
        """Ops of the graph, one per node."""
        self.last_users = [-1] * len(self.ops)
        """For each op, the index of the last op that uses its output, or -1 if none does."""
        for index, op in enumerate(self.ops):
            for source in op.sources:
                self.last_users[source] = index
        self.lifetimes = Lifetimes(self.ops)
        self.peak_index = max(range(len(self.nodes)), key=self.lifetimes.bytes.__getitem__)
        """Index of the first op at the peak."""
        self.at_peak = self.lifetimes.homes_during(self.peak_index)
        self._whole: dict[Node, int] = {}
        self.needs: dict[tuple[Node, int], Any] = {}
        """Known results of :func:`etdev.lowering.axes.needs`, by op and axis."""
        self.runs: dict[tuple[Node, int], bool] = {}
        """Known results of :func:`is_run`, by op and axis."""

    def whole(self, node: Node) -> int:
        """Return the bytes of all outputs of an op, unused ones included."""
        found = self._whole.get(node)
        if found is None:
            found = self._whole[node] = nbytes(node)
        return found

    def _op(self, node: Node, constants: Container[str]) -> Op:
        is_call = node.op == "call_function"
        return Op(
            kind=_kind_in_memory(node) if is_call else "",
            sources=self._sources(node),
            nbytes=nbytes(node, first_only=_has_useless_outputs(node)),
            is_planned=is_call or (node.op == "placeholder" and node.name not in constants),
            runs_along=not is_call or _runs_along(node),
            workspace=self.workspace(node) if is_call else 0,
        )

    def _sources(self, node: Node) -> tuple[int, ...]:
        return tuple([self.at[source] for source in node.all_input_nodes])

    def _moved(self, before: Occupancy) -> dict[Node, Op]:
        """Return the ops of ``before`` that the graph still has.

        Tiling moves ops and replaces inputs, but the new inputs have the sizes of the old ones.
        """
        found = {}
        places = [self.at.get(node, -1) for node in before.nodes]
        for node, place, op in zip(before.nodes, places, before.ops, strict=True):
            if place < 0 or op.kind == _POOLING:
                continue
            sources = tuple([places[source] for source in op.sources])
            if sources == op.sources:
                found[node] = op
                continue
            if -1 in sources:
                sources = self._sources(node)
            found[node] = op._replace(sources=sources)
        return found

    def during(self, node: Node) -> int:
        """Return the bytes in use during an op."""
        return self.lifetimes.bytes[self.at[node]]

    def output(self, node: Node) -> int:
        """Return the bytes of an op's output."""
        return self.ops[self.at[node]].nbytes

    def ends_at(self, value: Node, node: Node) -> bool:
        """Return whether a value's memory can be reused after an op. Constants cannot be reused."""
        home = self.lifetimes.home_of(self.at[value])
        return self.ops[home].is_planned and self.lifetimes.last[home] <= self.at[node]

    def peak(self, without: Container[Node] = ()) -> int:
        """Return the peak number of bytes over all ops except those in ``without``."""
        return max((self.lifetimes.bytes[at] for node, at in self.at.items() if node not in without), default=0)


def nbytes(node: Node, *, first_only: bool = False) -> int:
    """Return the number of bytes of a node's output tensors, or of the first tensor only. Unknown sizes count as 0."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return sum(_tensor_bytes(item) for item in (values[:1] if first_only else values))


def _has_useless_outputs(node: Node) -> bool:
    """Return whether only the first output of an op counts for memory.

    A norm also returns statistics, which are small and unused. A maximum also returns indices. If the indices are
    unused, :mod:`etdev.lowering.pooling` replaces the maximum by ops without indices.
    """
    kind = kind_of(node)
    return kind in _IN_PLACE or (kind == _POOLING and len(node.users) == 1)


def kind_of(node: Node) -> str:
    """Return the name of an op without namespace and overload, such as ``add`` for ``aten.add.Tensor``."""
    return _kind_of_target(node.target)


@cache
def _kind_of_target(target: Any) -> str:
    parts = str(getattr(target, "__name__", target)).split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def _kind_in_memory(node: Node) -> str:
    """Return the kind of an op, or ``view_copy`` for any op that leaves the elements in the same order."""
    kind = kind_of(node)
    if kind == "_to_dim_order_copy" and node.all_input_nodes[0].meta["val"].dtype == node.meta["val"].dtype:
        return "view_copy"
    if kind not in _MOVES:
        return kind
    source, shape = node.all_input_nodes[0].meta["val"].shape, node.meta["val"].shape
    if kind == "expand_copy":
        static = all(isinstance(size, int) for size in (*source, *shape))
        return "view_copy" if static and math.prod(source) == math.prod(shape) else kind
    order: Any = node.args[1]
    if kind == "transpose_copy":
        order = list(range(len(shape)))
        first, second = node.args[1:3]
        order[first], order[second] = order[second], order[first]
    if not all(isinstance(size, int) for size in source):
        return kind
    moved = [dim % len(shape) for dim in order if source[dim] != 1]
    return "view_copy" if moved == sorted(moved) else kind


def is_run(shape: Sequence[int], axis: int) -> bool:
    """Return whether a slice along the axis is one contiguous run of bytes."""
    return all(size == 1 for size in shape[:axis])


def _runs_along(node: Node) -> bool:
    """Return whether a slice, or each part of a concatenation, is one contiguous run of bytes in the whole tensor.

    Return True for all other ops.
    """
    if kind_of(node) not in ("slice_copy", "cat"):
        return True
    dim: Any = node.args[1] if len(node.args) > 1 else 0
    shape = node.all_input_nodes[0].meta["val"].shape
    return is_run(shape, dim % len(shape))


def _tensor_bytes(value: Any) -> int:
    import torch

    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        return 0
    return value.numel() * value.element_size()
