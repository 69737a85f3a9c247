"""Counts of the ops of a method in delegates and on kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from etdev.pipeline.results.result import UndelegatedOps
from etdev.pipeline.stages.artifacts import Delegation

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

_BOOKKEEPING = ("getitem", "sym_size", "alloc", "_assert", "sym_constrain", "cond", "map_impl", "scan")
"""Prefixes of the names of ops that are not counted.

These ops only move references and sizes, or call a branch whose ops are counted separately.
"""


def summarize_delegation(method: str, program: ExportedProgram) -> Delegation:
    """Count the ops of a method inside and outside delegates, including the ops in control-flow branches."""
    calls: Counter[str] = Counter()
    undelegated: Counter[str] = Counter()
    delegated = 0
    for module, node in _calls(program.graph_module):
        name = str(getattr(node.target, "__name__", node.target))
        if name == "executorch_call_delegate":
            lowered = getattr(module, str(node.args[0].target))  # type: ignore[union-attr]
            calls[lowered.backend_id] += 1
            delegated += sum(1 for _ in _calls(lowered.original_module.graph_module))
        else:
            undelegated[name] += 1
    rest = tuple(UndelegatedOps(op=op, count=count) for op, count in sorted(undelegated.items()))
    return Delegation(method, dict(sorted(calls.items())), delegated, rest)


def _calls(module: GraphModule) -> Iterator[tuple[GraphModule, Node]]:
    """Yield every op of a graph, its branches and its loop bodies, except ops in ``_BOOKKEEPING``."""
    for node in module.graph.nodes:
        if node.op == "get_attr" and type(branch := getattr(module, str(node.target), None)).__name__ == "GraphModule":
            yield from _calls(branch)  # type: ignore[arg-type]
        if node.op != "call_function":
            continue
        name = str(getattr(node.target, "__name__", node.target))
        if not name.startswith(_BOOKKEEPING) and getattr(node.target, "__module__", "") != "_operator":
            yield module, node
