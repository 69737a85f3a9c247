"""Skips passes of ExecuTorch's edge conversion that cannot change a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


@contextmanager
def needed_passes() -> Iterator[None]:
    """During the block, make ExecuTorch skip passes that cannot change the graph.

    Before the edge dialect, ExecuTorch runs eight passes that trace the whole graph again. Six of these passes change
    only certain ops, which most graphs do not have. A pass has no effect on a graph without such an op.
    """
    from executorch.exir.program import _program

    chosen, memory_format = _program._get_aten_to_edge_passes, _program.MemoryFormatOpsPass

    def choose(config: Any) -> tuple[list[Any], list[Any]]:
        before, after = chosen(config)
        return [_if_needed(graph_pass) for graph_pass in before], after

    _program._get_aten_to_edge_passes = choose
    _program.MemoryFormatOpsPass = lambda: _if_needed(memory_format())
    try:
        yield
    finally:
        _program._get_aten_to_edge_passes, _program.MemoryFormatOpsPass = chosen, memory_format


def _if_needed(graph_pass: Callable[[GraphModule], Any]) -> Callable[[GraphModule], Any]:
    """Return a pass that runs ``graph_pass`` only if the graph has a node that ``graph_pass`` may change."""
    from torch.fx import GraphModule
    from torch.fx.passes.infra.pass_base import PassResult

    changes = CHANGED_NODES.get(getattr(graph_pass, "__name__", type(graph_pass).__name__))
    if changes is None:
        return graph_pass

    def call(program: GraphModule) -> Any:
        graphs = (module.graph for module in program.modules() if isinstance(module, GraphModule))
        if any(changes(node) for graph in graphs for node in graph.nodes if node.op == "call_function"):
            return graph_pass(program)
        return PassResult(program, False)

    return call


def _transposed(node: Node) -> bool:
    import torch

    return node.target is torch.ops.aten.t.default


def _viewed(node: Node) -> bool:
    return getattr(node.target, "is_view", False)


def _given_scalar(node: Node) -> bool:
    return any(isinstance(value, bool | int | float) for value in _tensor_arguments(node))


def _given_symbol(node: Node) -> bool:
    import torch

    symbols = torch.SymInt, torch.SymFloat, torch.SymBool
    return any(isinstance(_value(value), symbols) for value in _tensor_arguments(node))


def _promoted(node: Node) -> bool:
    """Return True if ExecuTorch may convert the operands of an op to one dtype."""
    name = getattr(node.target, "__name__", "")
    if name.partition(".")[0] not in ("add", "div", "minimum", "mul", "sub"):
        return False
    dtypes = {getattr(_value(value), "dtype", None) for value in node.args}
    return len(dtypes) > 1 or not all(dtype is not None and dtype.is_floating_point for dtype in dtypes)


def _has_memory_format(node: Node) -> bool:
    from executorch.exir.passes.dim_order_ops_registry import DimOrderOpsMap

    return node.target in DimOrderOpsMap


def _tensor_arguments(node: Node) -> Iterable[Any]:
    """Yield the arguments of a node that the schema of the op declares as tensors."""
    import torch

    schema = getattr(node.target, "_schema", None)
    for index, argument in enumerate(schema.arguments if schema else ()):
        if isinstance(argument.type, torch.TensorType):
            if argument.name in node.kwargs:
                yield node.kwargs[argument.name]
            elif index < len(node.args):
                yield node.args[index]


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if hasattr(argument, "meta") else argument


CHANGED_NODES: Mapping[str, Callable[[Node], bool]] = {
    "MemoryFormatOpsPass": _has_memory_format,
    "NormalizeTransposePass": _transposed,
    "RemoveMixedTypeOperators": _promoted,
    "ReplaceBrokenOpsWithFunctionalOpsPass": _viewed,
    "ScalarToTensorPass": _given_scalar,
    "SymToTensorPass": _given_symbol,
}
"""Maps the name of an ExecuTorch pass to a function that returns True for a node that the pass may change.

Each of these passes traces the whole graph.
"""
