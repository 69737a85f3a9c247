"""Functions that assign sizes and state to delegates. A node belongs to the delegate whose tag it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node


def own_sizes(graph_module: GraphModule, key: str) -> None:
    """Tag each size that only one delegate needs, so that the delegate computes the size itself.

    The delegate must compute or receive the tensor that has this size. No other delegate may depend on the nodes
    between this tensor and the delegate. Otherwise, two delegates could need results of each other.
    """
    import torch

    for node in reversed(graph_module.graph.nodes):
        if node.op != "call_function" or key in node.meta or not isinstance(node.meta.get("val"), torch.SymInt):
            continue
        tags = {user.meta.get(key) for user in node.users}
        tag = next(iter(tags), None)
        if len(tags) == 1 and tag is not None and all(_has(each, tag, key) for each in node.all_input_nodes):
            node.meta[key] = tag


def _has(node: Node, tag: str, key: str) -> bool:
    """Return True if the delegate with this tag computes a node, or can receive the node's result.

    Every delegate can receive a number.
    """
    import torch

    users = (node, *node.users)
    return isinstance(node.meta.get("val"), torch.SymInt) or any(user.meta.get(key) == tag for user in users)


def own_state(program: ExportedProgram, key: str) -> None:
    """Tag every buffer that only one delegate reads and changes.

    No other part of the method may use the buffer's new content. The delegate must also have an output that is not the
    new content of a buffer. Otherwise, ExecuTorch would remove the delegate's call as a call without effect.
    """
    signature = program.graph_signature
    results = {buffer: name for name, buffer in signature.buffers_to_mutate.items()}
    nodes = {node.name: node for node in program.graph.nodes}
    owned: dict[str, set[str]] = {}
    for node in _placeholders(program):
        buffer = signature.inputs_to_buffers.get(node.name)
        if buffer not in results:
            continue
        result = nodes[results[buffer]]
        tag = result.meta.get(key)
        inside = {user.meta.get(key) for user in (*node.users, *result.users) if user.op != "output"}
        if tag is not None and inside <= {tag} and node.users and _leaves_once(program, result):
            owned.setdefault(tag, set()).add(node.name)
            node.meta[key] = tag
    for tag, names in owned.items():
        if not _has_output(program, key, tag):
            for name in names:
                del nodes[name].meta[key]


def _placeholders(program: ExportedProgram) -> Iterator[Node]:
    return (node for node in program.graph.nodes if node.op == "placeholder")


def _leaves_once(program: ExportedProgram, result: Node) -> bool:
    names = [str(spec.arg.name) for spec in program.graph_signature.output_specs]
    return names.count(result.name) == 1


def _has_output(program: ExportedProgram, key: str, tag: str) -> bool:
    """Return True if a delegate has an output that is not the new content of one of the delegate's buffers."""
    changed = {
        name
        for name, buffer in program.graph_signature.buffers_to_mutate.items()
        for node in _placeholders(program)
        if program.graph_signature.inputs_to_buffers.get(node.name) == buffer and node.meta.get(key) == tag
    }
    return any(
        user.meta.get(key) != tag
        for node in program.graph.nodes
        if node.meta.get(key) == tag and node.op == "call_function" and node.name not in changed
        for user in node.users
    )
