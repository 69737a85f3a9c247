"""Functions that assign weights to delegates, and that find ops whose results depend only on weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node


def own_weights(program: ExportedProgram, key: str) -> None:
    """Tag every parameter and constant that a delegate uses. ExecuTorch copies a weight that several delegates use."""
    for node in _weights(program):
        tags = {user.meta[key] for user in node.users if key in user.meta}
        if tags:
            node.meta[key] = min(tags)


def computed_weights(program: ExportedProgram) -> list[Node]:
    """Return the ops that depend only on parameters and constants, such as the transposition of a weight matrix."""
    import torch
    from executorch.exir.dialects.edge._ops import EdgeOpOverload

    known, found = set(_weights(program)), []
    for node in program.graph.nodes:
        if (
            isinstance(node.target, EdgeOpOverload)
            and isinstance(node.meta.get("val"), torch.Tensor)
            and known.issuperset(node.all_input_nodes)
        ):
            known.add(node)
            found.append(node)
    return found


def own_computed_weights(nodes: Sequence[Node], key: str) -> None:
    """Tag each op of ``nodes`` if only one delegate uses it. Without a tag, each call would copy the op's result.

    ``nodes`` must be a subset of :func:`computed_weights`, in the same order. Ops that several delegates use get no
    tag, because ExecuTorch rejects a partitioner that copies an op for each delegate.
    """
    for node in reversed(nodes):
        tags = {user.meta.get(key) for user in node.users}
        if len(tags) == 1 and None not in tags:
            node.meta[key] = tags.pop()


def _weights(program: ExportedProgram) -> Iterator[Node]:
    """Yield the placeholder nodes of parameters and constants.

    A buffer that the method changes is not a constant. A delegate that owned such a buffer would keep using its initial
    value.
    """
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    names = {*signature.inputs_to_parameters, *signature.inputs_to_lifted_tensor_constants}
    names |= {name for name, buffer in signature.inputs_to_buffers.items() if buffer not in changed}
    return (node for node in program.graph.nodes if node.op == "placeholder" and node.name in names)
