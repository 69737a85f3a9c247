"""Debug handles: the numbers by which ExecuTorch identifies the ops of the exported model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from etdev.pipeline.stages.emit.graphs import graph_modules, ops_of

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

Handles: TypeAlias = "dict[Node, tuple[int, ...]]"
"""Maps each node that becomes a kernel call or a delegate call to its debug handles."""


def debug_handles(graph_module: GraphModule) -> Handles:
    """Return the debug handles of the nodes in a graph, its branches and its loop bodies.

    Call this before emission, because emission replaces the handles with indices. A delegate call has the handles of
    all ops inside the delegate, like in ExecuTorch's ``_add_debug_handle``. ExecuTorch's own map lacks branches and
    loop bodies.
    """
    found: Handles = {}
    for module in graph_modules(graph_module):
        for node in module.graph.nodes:
            inner = ops_of(module, node)
            handles = [item.meta.get("debug_handle") for item in inner if item.op == "call_function"]
            found[node] = tuple(handle for given in handles for handle in _flat(given))
    return {node: handles for node, handles in found.items() if handles}


def _flat(handle: Any) -> tuple[int, ...]:
    if handle is None:
        return ()
    return tuple(handle) if isinstance(handle, (list, tuple)) else (handle,)
