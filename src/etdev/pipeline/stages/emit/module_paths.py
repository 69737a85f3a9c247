"""Paths of the model's modules, from the notes that ``torch.export`` leaves on nodes."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from etdev.pipeline.stages.emit.graphs import ops_of

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"
"""Path that torch gives to nodes that it adds itself (``torch/_export/passes/_node_metadata_hook.py``)."""


def module_of(module: GraphModule, node: Node) -> str | None:
    """Return the path of the innermost module whose code created a node; None if it is not known.

    For a call of a delegate, return the path of the smallest module that contains all ops of the delegate.
    """
    found = [path for item in ops_of(module, node) if (path := module_path(item)) is not None]
    if not found:
        return None
    parts = [path.split(".") for path in found]
    common = takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))
    return ".".join(level[0] for level in common)


def module_path(node: Node) -> str | None:
    """Return the path of the innermost module of an op; None if the node is not an op or the path is not known."""
    stack = node.meta.get("nn_module_stack")
    if node.op != "call_function" or not stack:
        return None
    path = str(list(stack.values())[-1][0])
    return None if path == _NO_MODULE else path
