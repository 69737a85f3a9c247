"""Channels-last order in the graphs of the scheme ``cortex-m``.

The kernels with CMSIS-NN take only tensors in channels-last order. ExecuTorch 1.5.1 leaves a convolution in float if
its input is in another order. A model computes in contiguous order by default. So this module inserts copies into
channels-last order for contiguous operands of convolutions and pooling. Kernels require one order for all operands. So
if one operand of an op is in channels-last order, the module copies the other operands, too. All other ops keep the
order of their operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._prims_common import suggest_memory_format
from torch.fx import GraphModule, Interpreter, Node

_aten = torch.ops.aten
_CHANNELS_LAST = frozenset(
    {
        _aten.conv2d.default,
        _aten.conv2d.padding,
        _aten.convolution.default,
        _aten.conv_transpose2d.input,
        _aten.avg_pool2d.default,
        _aten.max_pool2d.default,
        _aten.adaptive_avg_pool2d.default,
    }
)
"""Ops whose kernels take their first operand in channels-last order if it has four dimensions."""
_VIEWS = frozenset({_aten.view.default, _aten._unsafe_view.default})
"""Ops that may fail on operands that are not in contiguous order."""
_ORIGIN = ("nn_module_stack", "stack_trace")


def use_channels_last(module: GraphModule) -> None:
    """Insert copies, so that convolutions and pooling read tensors in channels-last order.

    ``module`` is the module of an exported program. The results of all ops keep their values, and outputs in contiguous
    or channels-last order keep that order. Do nothing in these cases:

    * No op needs a copy.
    * The graph has branches or loops.
    * An op depends on strides.
    * An op writes to a tensor that has a view. The view may become a copy.
    """
    nodes = list(module.graph.nodes)
    inputs = [node.meta.get("val") for node in nodes if node.op == "placeholder"]
    mode = detect_fake_mode(inputs)
    if mode is None or not any(_is_contiguous_operand(node) for node in nodes) or any(map(_is_opaque, nodes)):
        return
    if _writes_behind_views(nodes):
        return
    with mode:
        _Orders(module, mode).run(*inputs, enable_io_processing=False)
    module.recompile()


def _is_contiguous_operand(node: Node) -> bool:
    return node.target in _CHANNELS_LAST and _is_contiguous(node.args[0].meta.get("val"))  # type: ignore[union-attr]


def _is_contiguous(value: Any) -> bool:
    """Return True for a tensor with four dimensions that is not in channels-last order."""
    return _is_image(value) and suggest_memory_format(value) != torch.channels_last


def _is_image(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 4


def _is_opaque(node: Node) -> bool:
    return "as_strided" in str(node.target) or isinstance(node.target, torch._ops.HigherOrderOperator)


def _writes_behind_views(nodes: Sequence[Node]) -> bool:
    """Return True if an op writes to a tensor after another op made a view of the same elements."""
    base: dict[Node, Node] = {}
    viewed: set[Node] = set()
    for node in nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        schema = node.target._schema
        if any(item.alias_info is not None and item.alias_info.is_write for item in schema.arguments):
            if any(base.get(operand, operand) in viewed for operand in node.all_input_nodes):
                return True
        elif not any(item.alias_info is not None for item in schema.returns):
            continue
        else:
            viewed.update(base.get(operand, operand) for operand in node.all_input_nodes[:1])
        for operand in node.all_input_nodes[:1]:
            base[node] = base.get(operand, operand)
    return False


class _Orders(Interpreter):
    """An interpreter on tensors without data that inserts the copies, and updates the metadata of all nodes."""

    def __init__(self, module: GraphModule, mode: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._mode = mode
        self._before = {node: node.meta.get("val") for node in module.graph.nodes}

    def run_node(self, n: Node) -> Any:
        if n.op == "call_function":
            operand = n.args[0] if n.args else None
            value = self.env.get(operand) if isinstance(operand, Node) else None
            if n.target in _CHANNELS_LAST:
                if _is_contiguous(value):
                    self._copy(n, operand, torch.channels_last)
            elif n.target in _VIEWS:
                if isinstance(value, torch.Tensor) and not value.is_contiguous():
                    self._copy(n, operand, torch.contiguous_format)
            else:
                self._align(n)
        elif n.op == "output":
            for operand in n.all_input_nodes:
                before, now = self._before[operand], self.env[operand]
                if isinstance(now, torch.Tensor) and now.stride() != before.stride():
                    order = suggest_memory_format(before)
                    if before.is_contiguous(memory_format=order):
                        self._copy(n, operand, order)
        found = super().run_node(n)
        n.meta["val"] = found
        return found

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        found = super().get_attr(target, args, kwargs)
        return self._mode.from_tensor(found, static_shapes=True) if isinstance(found, torch.Tensor) else found

    def _align(self, n: Node) -> None:
        """Insert copies so that all four-dimensional operands of an op have one order.

        If the op changes a tensor, use the order of that tensor. Otherwise, use channels-last order.
        """
        images = {node: self.env[node] for node in n.all_input_nodes if _is_image(self.env[node])}
        if len({suggest_memory_format(value) for value in images.values()}) < 2:
            return
        order = torch.channels_last
        if isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable:
            order = suggest_memory_format(images.get(n.all_input_nodes[0], next(iter(images.values()))))
        for node, value in images.items():
            if suggest_memory_format(value) != order:
                self._copy(n, node, order)

    def _copy(self, user: Node, operand: Any, order: torch.memory_format) -> None:
        """Insert a copy of ``operand`` in this order before ``user``, and let ``user`` read the copy."""
        with user.graph.inserting_before(user):
            copied = user.graph.call_function(_aten.clone.default, (operand,), {"memory_format": order})
        copied.meta.update({key: user.meta[key] for key in _ORIGIN if key in user.meta})
        user.replace_input_with(operand, copied)
        self.env[copied] = copied.meta["val"] = _aten.clone.default(self.env[operand], memory_format=order)
