"""Virtual addresses: planned memory in which different tensors of a graph never share bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etdev.pipeline.stages.emit.debug_handles import Handles, debug_handles
from etdev.pipeline.stages.emit.mutable_state import State

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node
    from torch.fx.passes.infra.pass_base import PassResult

MEMORY_ID = 1
"""Memory id of the only planned buffer, which contains every tensor."""

ALIGNMENT = 64
"""Alignment of every address in bytes; enough for the vector instructions of any kernel."""

GAP = 64
"""Minimum number of bytes between tensors, because XNNPACK reads up to that many bytes past a tensor's end."""


def next_address(address: int, size: int) -> int:
    """Return the first free address after a tensor of ``size`` bytes at ``address``.

    An empty tensor also has its own address.
    """
    return -(-(address + size + GAP) // ALIGNMENT) * ALIGNMENT


class VirtualAddresses:
    """A replacement for ExecuTorch's memory planning of one method. It never reuses a byte.

    Every ``TensorSpec`` gets its own address, from one counter for the graph, its branches and its loop bodies. Nodes
    with the same spec object are one tensor, such as a buffer and the result of ``copy_`` into it. This class marks
    each state, so that emission keeps the state's initial value or name.
    """

    def __init__(self, state: Mapping[str, State]) -> None:
        self._state = state
        self._end = 0
        self.places: dict[int, State] = {}
        """Maps the address of each state, in bytes, to the state; complete after :meth:`run`."""
        self.handles: Handles = {}
        """Debug handles of the nodes, collected before emission replaces them with indices; complete after :meth:`run`.
        """

    def run(self, graph_module: GraphModule, graph_signature: Any = None) -> PassResult:
        """Plan the method's graph; ExecuTorch calls this as the last step before emission."""
        from executorch.exir.passes import MemoryPlanningPass

        # ExecuTorch's class finds out which specs are one tensor (in-place ops) and which do not need memory
        # (constants). The callback only assigns addresses.
        result: PassResult = MemoryPlanningPass(memory_planning_algo=self._place, alignment=ALIGNMENT).run(
            graph_module, graph_signature
        )
        for node in graph_module.graph.nodes:
            if node.op == "placeholder" and str(node.target) in self._state:
                self._place_state(node, self._state[str(node.target)])
            elif node.op == "placeholder" and graph_signature is not None:
                _name_constant(node, graph_signature)
        # ExecuTorch's own sum does not include the states that only this class recognizes.
        graph_module.meta["non_const_buffer_sizes"] = [0, self._end]
        self.handles = debug_handles(graph_module)
        return result

    def _place(self, _alignment: int, specs: Sequence[Any], *_: Any) -> list[int]:
        for spec in specs:
            if spec.mem_offset is None:  # A spec that also occurs in a branch may already have its address.
                self._place_spec(spec)
        return [0, self._end]

    def _place_spec(self, spec: Any) -> None:
        spec.mem_id, spec.mem_offset = MEMORY_ID, self._end
        self._end = next_address(self._end, spec.nbytes())

    def _place_state(self, node: Node, state: State) -> None:
        """Assign an address to a state. If the state has no initial value, also set the name in its spec.

        If the state has an initial value, mark it so that emission keeps the value. Such a state gets its name after
        emission, from :func:`~etdev.pipeline.stages.emit.mutable_state.with_names`. With a name, emission would look
        up the value by its bytes, and could use an unrelated constant with equal bytes.
        """
        from executorch.exir.schema import ExtraTensorInfo

        spec = node.meta["spec"]
        if spec.mem_offset is None:  # This method only reads the state, so ExecuTorch treats the state as a constant.
            self._place_spec(spec)
        if state.initialized:
            node.meta["et_init_buffer"] = True
        else:
            spec.extra_tensor_info = ExtraTensorInfo(fully_qualified_name=state.name)
        self.places[spec.mem_offset] = state


def _name_constant(node: Node, graph_signature: Any) -> None:
    from executorch.exir.schema import ExtraTensorInfo

    spec: Any = node.meta.get("spec")
    name = _constant_name(str(node.target), graph_signature)
    if name is not None and getattr(spec, "const", False) and spec.mem_offset is None:
        spec.extra_tensor_info = ExtraTensorInfo(fully_qualified_name=name)


def _constant_name(placeholder: str, graph_signature: Any) -> str | None:
    tables = ("inputs_to_parameters", "inputs_to_buffers", "inputs_to_lifted_tensor_constants")
    return next((found for table in tables if (found := getattr(graph_signature, table).get(placeholder))), None)
