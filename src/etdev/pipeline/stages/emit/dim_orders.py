"""Dimension orders: inserts copies of tensors for kernels that need another dimension order.

PyTorch ops compute the same values for every dimension order. Most kernels of ExecuTorch 1.4 and 1.5 do not. Some fail
with error 0x12 on tensors in channels-last order, because they require one order for all operands. An operand of
another rank or shape, even a single number, is in contiguous order, not channels-last. Other kernels ignore the
order and compute wrong values: views, ``cat``, ``pad``, ``flip``, ``gather`` and ``layer_norm``. This module passes
channels-last tensors only to kernels that were tested with that order.

Tensors that are neither contiguous nor channels-last (*odd* order, see :mod:`etdev.pipeline.stages.memory_orders`)
become contiguous.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from etdev.pipeline.stages.emit.graphs import graph_modules
from etdev.pipeline.stages.memory_orders import contiguous_like, is_odd, is_plain, make_constants_contiguous, order_of
from etdev.pipeline.stages.writes import write_targets

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_ANY_ORDER = frozenset(
    f"aten::{name}"
    for name in (
        "convolution",
        "max_pool2d_with_indices",
        "upsample_bilinear2d",
        "upsample_nearest2d",
        "var",
    )
)
"""Ops whose kernels computed correct results in tests with channels-last tensors.

A pointwise op also supports channels-last order if all its tensors have this order and the same sizes. For other ops,
this module makes the inputs contiguous, and restores the order of the results. Do not add an op for which ExecuTorch
1.5.1 makes the inputs contiguous (``LegalizePortableDimOrderPass``). Its results would stay contiguous.
"""


def set_plain_orders(program: ExportedProgram) -> None:
    """Insert copies so that kernels without support for other dimension orders run on contiguous tensors.

    This includes ops in branches and loop bodies. Later kernels derive the order of their results from their inputs.
    Therefore, results that had channels-last order are copied back to this order. Results in other orders stay
    contiguous.
    """
    reordered = set(make_constants_contiguous(program))
    for module in graph_modules(program.graph_module):
        plain: dict[Node, Node] = {}
        changed = False
        for node in list(module.graph.nodes):
            if _copies_to_odd_order(node):
                changed = True
                node.kwargs = {**node.kwargs, "dim_order": list(range(node.meta["val"].dim()))}
                node.meta["val"] = contiguous_like(node.meta["val"])
                reordered.add(node)
                continue
            _update(node, module is program.graph_module, reordered)
            if _needs_plain(node):
                changed = True
                _set_plain_inputs(node, plain)
                _set_plain_results(node, plain, reordered)
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
        if target is not None and order_of(target.meta["val"]) != order_of(value.meta["val"]):
            with program.graph.inserting_before(output):
                values[position] = edge_clone(value, order_of(target.meta["val"]))
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
    order = order_of(value.meta["val"]) if order is None else order
    return value.graph.call_function(op, (value,), {"dim_order": order})


def _update(node: Node, is_outermost: bool, reordered: set[Node]) -> None:
    """Update the metadata of a node if the orders of the node's inputs changed."""
    value = node.meta.get("val")
    if node.op == "placeholder":
        if not is_outermost and _tensors(node) and is_odd(value):
            node.meta["val"] = contiguous_like(value)
            reordered.add(node)
    elif node.op == "call_function" and not reordered.isdisjoint(node.all_input_nodes):
        target: Any = node.target
        if target is not operator.getitem and not hasattr(target, "_schema"):
            return  # The results of a delegate, a branch or a loop keep their orders.
        from torch.fx.node import map_arg

        args, kwargs = map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
        node.meta["val"] = target(*args, **kwargs)
        reordered.add(node)


def _needs_plain(node: Node) -> bool:
    """Return True if the op must run on contiguous tensors.

    This is the case if a tensor of the op has an order that the op's kernel does not support.
    """
    import torch

    op: Any = getattr(node.target, "_op", None)
    if node.op != "call_function" or getattr(op, "namespace", None) != "aten":
        return False
    values = [*_tensors(node), *(value for source in node.all_input_nodes for value in _tensors(source))]
    if any(map(is_odd, values)):
        return True
    if all(map(is_plain, values)):
        return False
    if op._schema.name in _ANY_ORDER:
        first: Any = node.args[0]
        return any(order_of(result) != order_of(first.meta["val"]) for result in _tensors(node)[:1])
    # Kernels that broadcast a tensor in channels-last order compute wrong values, such as `mul` for (1, C, 1, 1).
    return torch.Tag.pointwise not in op.tags or len({(*order_of(value), str(value.shape)) for value in values}) > 1


def _copies_to_odd_order(node: Node) -> bool:
    """Return True if a node copies a tensor to an order that later ops cannot rely on.

    This is an order that is neither contiguous nor channels-last, or an order that the result's strides do not show.
    """
    op: Any = getattr(node.target, "_op", None)
    stated: Any = node.kwargs.get("dim_order")
    if getattr(op, "namespace", None) != "dim_order_ops" or stated is None:
        return False
    return list(stated) != order_of(node.meta["val"]) or is_odd(node.meta["val"])


def _set_plain_inputs(node: Node, plain: dict[Node, Node]) -> None:
    for source in node.all_input_nodes:
        if source in plain:
            node.replace_input_with(source, plain[source])
        elif any(not is_plain(value) for value in _tensors(source)):
            value = source.meta["val"]
            with node.graph.inserting_before(node):
                copy = edge_clone(source, list(range(value.dim())))
            copy.meta = {**node.meta, "val": contiguous_like(value)}
            node.replace_input_with(source, copy)


def _set_plain_results(node: Node, plain: dict[Node, Node], reordered: set[Node]) -> None:
    """Make a node's results contiguous; for the users of each result, insert a clone in channels-last order.

    ``plain`` maps each clone to the contiguous result. A result that was neither contiguous nor channels-last has no
    clone and is added to ``reordered``.
    """
    value = node.meta["val"]
    if isinstance(value, tuple | list):
        node.meta["val"] = type(value)(contiguous_like(item) if hasattr(item, "contiguous") else item for item in value)
        for user in [user for user in node.users if user.target is operator.getitem]:
            _set_plain_results(user, plain, reordered)
    elif any(map(is_odd, _tensors(node))):
        node.meta["val"] = contiguous_like(value)
        reordered.add(node)
    elif any(not is_plain(item) for item in _tensors(node)):
        node.meta["val"] = contiguous_like(value)
        with node.graph.inserting_after(node):
            restored = edge_clone(node, order_of(value))
        restored.meta = {**node.meta, "val": value}
        node.replace_all_uses_with(restored, delete_user_cb=lambda user: user is not restored)
        plain[restored] = node


def _tensors(node: Node) -> list[Any]:
    """Return the tensors among the results of a node."""
    import torch

    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    return [item for item in values if isinstance(item, torch.Tensor)]
