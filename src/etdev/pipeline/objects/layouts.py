"""Dimension orders that a copy has to change before a view may ignore them.

Kernels of views give the output the bytes of the input as they lie in memory, whatever order the dimensions have there.
PyTorch means the order of the sizes. ExecuTorch 1.4 does not see the difference: the model computes something else, or
fails. Seen with a view, an ``unsqueeze`` and a ``squeeze`` of a tensor in channels-last order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etdev.pipeline.objects.graphs import graph_modules

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def set_plain_views(graph_module: GraphModule) -> None:
    """Put a copy into the order of the sizes before every view of what lies otherwise, branches and loops included."""
    from executorch.exir.dialects._ops import ops

    aten = ops.edge.aten
    squeezes = [aten.squeeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims]
    for module in graph_modules(graph_module):
        for view in (aten.view_copy.default, aten.unsqueeze_copy.default, *squeezes):
            for node in module.graph.find_nodes(op="call_function", target=view):
                if not _is_plain(node.all_input_nodes[0].meta["val"]) and _is_plain(node.meta["val"]):
                    _set_plain_input(node)
        module.recompile()


def edge_clone(value: Node, order: list[int] | None = None) -> Node:
    """A clone with the dimensions in this order, or as the value has them, where the graph inserts."""
    from executorch.exir.dialects._ops import ops
    from executorch.exir.tensor import dim_order_from_stride

    if order is None:
        order = list(dim_order_from_stride(value.meta["val"].stride()))
    op = ops.edge.dim_order_ops._clone_dim_order.default
    return value.graph.call_function(op, (value,), {"dim_order": order})


def _is_plain(value: Any) -> bool:
    from executorch.exir.tensor import dim_order_from_stride

    return list(dim_order_from_stride(value.stride())) == list(range(value.dim()))


def _set_plain_input(view: Node) -> None:
    source = view.all_input_nodes[0]
    value = source.meta["val"]
    with view.graph.inserting_before(view):
        copy = edge_clone(source, list(range(value.dim())))
    copy.meta = {**view.meta, "val": value.contiguous()}
    view.replace_input_with(source, copy)
