"""Debug handles: ExecuTorch's numbers of the ops of the exported model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from etdev.pipeline.stages.emit.graphs import delegated_nodes, graph_modules

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

Handles: TypeAlias = "dict[Node, tuple[int, ...]]"
"""Debug handles of the nodes that become a kernel or delegate call."""


def debug_handles(graph_module: GraphModule) -> Handles:
    """Return the handles of a graph with its branches and loop bodies, before emission replaces them by indices.

    A delegate call has the handles of the ops inside, as upstream's ``_add_debug_handle`` collects them. Upstream's own
    map lacks branches and loop bodies.
    """
    found: Handles = {}
    for module in graph_modules(graph_module):
        for node in module.graph.nodes:
            inner = delegated_nodes(module, node) or [node]
            handles = [item.meta.get("debug_handle") for item in inner if item.op == "call_function"]
            found[node] = tuple(handle for given in handles for handle in _flat(given))
    return {node: handles for node, handles in found.items() if handles}


def _flat(handle: Any) -> tuple[int, ...]:
    if handle is None:
        return ()
    return tuple(handle) if isinstance(handle, (list, tuple)) else (handle,)
