"""Access to the branches, loop bodies and delegates of a lowered graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def graph_modules(graph_module: GraphModule) -> Iterator[GraphModule]:
    """Yield the graph, and all branches and loop bodies in it."""
    from torch.fx import GraphModule

    return (module for module in graph_module.modules() if isinstance(module, GraphModule))


def lowered_modules(graph_module: GraphModule) -> Iterator[Any]:
    """Yield the ``LoweredBackendModule`` of every delegate in a graph, its branches and its loop bodies.

    Yield each module only once.
    """
    from executorch.exir.lowered_backend_module import LoweredBackendModule

    return (module for module in graph_module.modules() if isinstance(module, LoweredBackendModule))


def lowered_module(module: GraphModule, node: Node) -> Any | None:
    """Return the ``LoweredBackendModule`` that a delegate call runs; None for any other node."""
    from executorch.exir.delegate import executorch_call_delegate

    if node.target is not executorch_call_delegate:
        return None
    return getattr(module, str(node.args[0].target))  # type: ignore[union-attr]


def ops_of(module: GraphModule, node: Node) -> list[Node]:
    """Return the nodes inside the delegate that a node calls, in order; the node itself if it calls no delegate."""
    lowered = lowered_module(module, node)
    return [node] if lowered is None else list(lowered.original_module.graph.nodes)
