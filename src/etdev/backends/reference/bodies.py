"""Memory order of the inputs of a loop's body.

Copies of the edge dialect, such as ``permute_copy``, write elements in order. In PyTorch, they are views with other
strides. ExecuTorch replaces the strides of such views everywhere, except at the inputs of the body of a ``scan``.
"""

from __future__ import annotations

import torch
from executorch.exir.graph_module import get_control_flow_submodules
from torch.fx import GraphModule, Node


def restore_orders(graph_module: GraphModule) -> None:
    """Give each input of the body of a ``scan`` the memory order of the tensor that it receives.

    The body receives copies of rows, and of the tensors that it carries to the next iteration. Their elements are in
    order. It receives other tensors as they are.
    """
    for _, body, call in get_control_flow_submodules(graph_module):
        if call.target is torch.ops.higher_order.scan:
            others = call.args[3]
            assert isinstance(others, tuple | list)
            inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
            copied = len(inputs) - len(others)
            for node, operand in zip(inputs, (*[None] * copied, *others), strict=True):
                _restore(node, operand)
        restore_orders(body)


def _restore(node: Node, operand: object) -> None:
    own, given = node.meta.get("val"), operand.meta.get("val") if isinstance(operand, Node) else None
    if isinstance(given, torch.Tensor):
        node.meta["val"] = given
    elif isinstance(own, torch.Tensor):
        node.meta["val"] = own.contiguous()
