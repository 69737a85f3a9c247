"""Partitioner of the reference backend. It tags convex sets of nodes in each graph, including branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from etdev.backends.base import CompileSpecValue, encode_compile_spec
from etdev.backends.reference.bodies import restore_orders
from etdev.backends.reference.choice import choose_nodes, in_modules, is_taken, wanted_kernels
from etdev.backends.reference.nested import EtdevReferenceBackend
from etdev.backends.reference.options import ReferenceOptions
from etdev.backends.reference.owned import own_sizes, own_state
from etdev.backends.reference.weights import computed_weights, own_computed_weights, own_weights

TAG = "delegation_tag"
"""Key in ``node.meta`` for the tag of a node's delegate. ExecuTorch reads this tag."""


class ReferencePartitioner(Partitioner):  # type: ignore[misc]
    """Partitioner that tags convex sets of nodes in each graph. torch's partitioner finds the sets."""

    def __init__(self, options: ReferenceOptions, specs: Mapping[str, CompileSpecValue]) -> None:
        super().__init__()
        self._options = options
        wanted_kernels(options)
        encoded = [CompileSpec(key, encode_compile_spec(value)) for key, value in specs.items()]
        self._delegation = DelegationSpec(EtdevReferenceBackend.__name__, encoded)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags: dict[str, DelegationSpec] = {}
        restore_orders(exported_program.graph_module)
        computed = computed_weights(exported_program)
        self._tag(exported_program.graph_module, tags, computed)
        if self._options.own_weights:
            taken = [node for node in computed if is_taken(node, self._options)]
            own_computed_weights(taken, TAG)
            own_weights(exported_program, TAG)
        if self._options.own_state:
            own_state(exported_program, TAG)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Return the ops that ExecuTorch should not decompose, such as ``linear``, and a filter for their nodes.

        These are the ops in the option ``ops``. The list is empty if ``ops`` is ``all``, or if ``part`` excludes some
        ops.
        """
        options = self._options
        if options.ops == "all" or options.part != (0.0, 1.0):
            return [], None
        wanted = wanted_kernels(options)
        found = {node.target for node in ep.graph.nodes if f"{_name(node)}.out" in wanted}
        return sorted(found, key=str), lambda node: in_modules(node, options.modules)

    def _tag(self, graph_module: GraphModule, tags: dict[str, DelegationSpec], computed: Sequence[Node] = ()) -> None:
        support = _Chosen(choose_nodes(graph_module, self._options, frozenset(computed)))
        partitioner = CapabilityBasedPartitioner(graph_module, support, allows_single_node_partition=True)
        for partition in partitioner.propose_partitions():
            tag = f"reference_{len(tags)}"
            tags[tag] = self._delegation
            for node in partition.nodes:
                node.meta[TAG] = tag
        own_sizes(graph_module, TAG)
        for _, branch, _ in get_control_flow_submodules(graph_module):
            self._tag(branch, tags)


class _Chosen(OperatorSupportBase):
    """Filter that tells torch's partitioner to take only the chosen nodes."""

    def __init__(self, nodes: set[Node]) -> None:
        self._nodes = nodes

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node in self._nodes


def _name(node: Node) -> str | None:
    """Return the name of an op that ExecuTorch would decompose, such as ``aten::linear``.

    Return None for other nodes.
    """
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    name: str = target.name()  # type: ignore[no-untyped-call]
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return name if torch._C._dispatch_has_kernel_for_dispatch_key(name, composite) else None
