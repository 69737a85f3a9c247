"""Counts of a method's ops: the ops in delegates, and the ops that kernels run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from etdev.pipeline.project.source_lines import SourceLines
from etdev.pipeline.results.result import UndelegatedOps
from etdev.pipeline.stages.artifacts import Delegation
from etdev.pipeline.stages.emit.graphs import ops_of
from etdev.pipeline.stages.emit.module_paths import module_path
from etdev.pipeline.stages.rejections import op_name, stated_reasons

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

_BOOKKEEPING = ("getitem", "sym_size", "alloc", "_assert", "sym_constrain", "cond", "map_impl", "scan")
"""Prefixes of the names of ops that are not counted.

These ops only move references and sizes, or call a branch whose ops are counted separately.
"""


def summarize_delegation(method: str, program: ExportedProgram, lines: SourceLines | None) -> Delegation:
    """Count the ops of a method inside and outside delegates, including the ops in control-flow branches.

    For ops outside delegates, the result also states the backends' reasons and the places in the model. Without
    ``lines``, it states only how many ops of each kind there are.
    """
    calls: Counter[str] = Counter()
    undelegated: defaultdict[str, list[tuple[GraphModule, Node]]] = defaultdict(list)
    delegated = 0
    for module, node in _calls(program.graph_module):
        name = op_name(node)
        if name == "executorch_call_delegate":
            lowered = getattr(module, str(node.args[0].target))  # type: ignore[union-attr]
            calls[lowered.backend_id] += 1
            delegated += sum(1 for _ in _calls(lowered.original_module.graph_module))
        else:
            undelegated[name].append((module, node))
    rest = tuple(_described(op, found, lines) for op, found in sorted(undelegated.items()))
    return Delegation(method, dict(sorted(calls.items())), delegated, rest)


def _described(op: str, found: Sequence[tuple[GraphModule, Node]], lines: SourceLines | None) -> UndelegatedOps:
    """Describe the ops of one kind that are outside delegates."""
    if lines is None:
        return UndelegatedOps(op=op, count=len(found))
    reasons = {index: stated for index, (_, node) in enumerate(found) if (stated := stated_reasons(node))}
    module, node = found[min(reasons, default=0)]
    source = lines.of(ops_of(module, node))
    return UndelegatedOps(
        op=op,
        count=len(found),
        reasons=tuple(dict.fromkeys(reason for stated in reasons.values() for reason in stated)),
        module=module_path(node),
        source=None if source is None else source.place,
    )


def _calls(module: GraphModule) -> Iterator[tuple[GraphModule, Node]]:
    """Yield every op of a graph, its branches and its loop bodies, except ops in ``_BOOKKEEPING``."""
    for node in module.graph.nodes:
        if node.op == "get_attr" and type(branch := getattr(module, str(node.target), None)).__name__ == "GraphModule":
            yield from _calls(branch)  # type: ignore[arg-type]
        if node.op != "call_function":
            continue
        if not op_name(node).startswith(_BOOKKEEPING) and getattr(node.target, "__module__", "") != "_operator":
            yield module, node
