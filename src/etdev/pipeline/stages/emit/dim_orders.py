"""Dimension orders: inserts copies of tensors for kernels that need another dimension order.

PyTorch ops compute the same values for every dimension order. Most kernels of ExecuTorch 1.4 and 1.5 do not. Some fail
with error 0x12 on tensors in channels-last order, because they require one order for all operands. An operand of
another rank or shape, even a single number, is in contiguous order, so its order differs. Other kernels ignore the
order and compute wrong values: views, ``cat``, ``pad``, ``flip``, ``gather`` and ``layer_norm``. This module passes
channels-last tensors only to kernels that were tested with that order.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import TYPE_CHECKING, Any

from etdev.pipeline.stages.emit.graphs import graph_modules
from etdev.pipeline.stages.writes import write_targets

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

_ANY_ORDER = frozenset(
    f"aten::{name}"
    for name in (
        "avg_pool2d",
        "convolution",
        "expand_copy",
        "max_pool2d_with_indices",
        "mean",
        "sum",
        "upsample_bilinear2d",
        "upsample_nearest2d",
        "var",
    )
)
"""Ops whose kernels computed correct results in tests with channels-last tensors."""


def set_plain_orders(graph_module: GraphModule) -> None:
    """Insert copies so that kernels without support for other dimension orders run on contiguous tensors.

    This includes ops in branches and loop bodies. Results are copied back to their old order, because later kernels
    derive the order of their own results from it.
    """
    for module in graph_modules(graph_module):
        plain: dict[Node, Node] = {}
        changed = False
        for node in list(module.graph.nodes):
            if _needs_plain(node):
                changed = True
                _set_plain_inputs(node, plain)
                _set_plain_results(node, plain)
        for restored in plain:
            if not restored.users:
                module.graph.erase_node(restored)
        if changed:
            module.recompile()


def set_written_orders(program: ExportedProgram) -> None:
    """Insert a copy of each value that is written to a buffer or an input.

    The copy has the dimension order of that buffer or input.
    """
    output = program.graph.output_node()
    values: list[Any] = list(output.args[0])
    changed = False
    for position, target in enumerate(write_targets(program)):
        value = values[position]
        if target is not None and _order(target.meta["val"]) != _order(value.meta["val"]):
            with program.graph.inserting_before(output):
                values[position] = edge_clone(value, _order(target.meta["val"]))
            changed = True
            values[position].meta = {**value.meta, "val": target.meta["val"]}
            program.graph_signature.output_specs[position].arg.name = values[position].name
    if changed:
        output.args = (type(output.args[0])(values),)
        program.graph_module.recompile()


def edge_clone(value: Node, order: list[int] | None = None) -> Node:
    """Insert a clone of a value and return it; without ``order``, the clone has the value's dimension order."""
    from executorch.exir.dialects._ops import ops

    op = ops.edge.dim_order_ops._clone_dim_order.default
    order = _order(value.meta["val"]) if order is None else order
    return value.graph.call_function(op, (value,), {"dim_order": order})


def _needs_plain(node: Node) -> bool:
    """Return True if the op must run on contiguous tensors.

    This is the case if the op has a tensor in another dimension order, which the op's kernel does not support.
    """
    import torch

    op: Any = getattr(node.target, "_op", None)
    if node.op != "call_function" or getattr(op, "namespace", None) != "aten" or op._schema.name in _ANY_ORDER:
        return False
    values = [*_tensors(node), *(value for source in node.all_input_nodes for value in _tensors(source))]
    if all(map(is_plain, values)):
        return False
    return torch.Tag.pointwise not in op.tags or len({tuple(_order(value)) for value in values}) > 1


def _set_plain_inputs(node: Node, plain: dict[Node, Node]) -> None:
    for source in node.all_input_nodes:
        if source in plain:
            node.replace_input_with(source, plain[source])
        elif any(not is_plain(value) for value in _tensors(source)):
            value = source.meta["val"]
            with node.graph.inserting_before(node):
                copy = edge_clone(source, list(range(value.dim())))
            copy.meta = {**node.meta, "val": value.contiguous()}
            node.replace_input_with(source, copy)


def _set_plain_results(node: Node, plain: dict[Node, Node]) -> None:
    """Make a node's results contiguous; for the users of each result, insert a clone in the old order.

    ``plain`` maps each clone to the contiguous result.
    """
    value = node.meta["val"]
    if isinstance(value, tuple | list):
        node.meta["val"] = type(value)(item.contiguous() if hasattr(item, "contiguous") else item for item in value)
        for user in [user for user in node.users if user.target is operator.getitem]:
            _set_plain_results(user, plain)
    elif any(not is_plain(item) for item in _tensors(node)):
        node.meta["val"] = value.contiguous()
        with node.graph.inserting_after(node):
            restored = edge_clone(node, _order(value))
        restored.meta = {**node.meta, "val": value}
        node.replace_all_uses_with(restored, delete_user_cb=lambda user: user is not restored)
        plain[restored] = node


def _tensors(node: Node) -> list[Any]:
    """Return the tensors among the results of a node."""
    import torch

    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    return [item for item in values if isinstance(item, torch.Tensor)]


def is_plain(value: Any) -> bool:
    """Return whether a tensor is in contiguous order."""
    return _order(value) == list(range(value.dim()))


def _order(value: Any) -> list[int]:
    from executorch.exir.tensor import dim_order_from_stride

    strides = tuple(value.stride())
    if all(type(stride) is int and stride for stride in strides):
        return list(dim_order(strides))
    return list(dim_order_from_stride(strides))


@cache
def dim_order(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions from the outermost in memory to the innermost.

    This is ExecuTorch's ``dim_order_from_stride`` for known strides, which are not 0.
    """
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))
