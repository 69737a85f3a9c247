"""The sidecar's notes on an emitted method: facts that the ``.pte`` format has no field for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from etdev.pipeline.project.source_lines import SourceLines
from etdev.pipeline.stages.emit.debug_handles import Handles
from etdev.pipeline.stages.emit.graphs import lowered_module, ops_of
from etdev.pipeline.stages.emit.instructions import MismatchError, Origin, match_instructions
from etdev.pipeline.stages.emit.module_paths import module_of, module_path
from etdev.pipeline.stages.emit.mutable_state import State
from etdev.pipeline.stages.emit.virtual_addresses import MEMORY_ID, VirtualAddresses
from etdev.program.model import ExecutionPlan
from etdev.program.sidecar import MethodNotes, OutputNote, Source, StateNote

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node


def describe_method(
    graph_module: GraphModule, plan: ExecutionPlan, planning: VirtualAddresses, lines: SourceLines
) -> MethodNotes:
    """Return the notes on an emitted method, from its graph and its virtual addresses.

    ``plan`` is the emitted method. Raises :class:`~etdev.pipeline.stages.emit.instructions.MismatchError` if ``plan``
    does not match ``graph_module``.
    """
    origins = match_instructions(graph_module, plan)
    return replace(describe_origins(origins, planning.handles, lines), state=_state(plan, planning.places))


def describe_origins(origins: list[Origin], handles: Handles, lines: SourceLines | None) -> MethodNotes:
    """Return the notes that depend only on the origins of a method's instructions.

    ``handles`` are the debug handles of the nodes. Without ``lines``, the notes contain no source lines.
    """
    return MethodNotes(
        delegate_inputs=_delegate_inputs(origins),
        sources={} if lines is None else _sources(origins, lines),
        debug_handles=_debug_handles(origins, handles),
        modules=_modules(origins),
        outputs=_outputs(origins, lines),
    )


def _delegate_inputs(origins: list[Origin]) -> dict[int, int]:
    # The first argument of the node is the lowered module, which is not a value of the program.
    return {
        index: len(origin.node.args) - 1
        for index, origin in enumerate(origins)
        if lowered_module(origin.module, origin.node) is not None
    }


def _state(plan: ExecutionPlan, places: Mapping[int, State]) -> tuple[StateNote, ...]:
    values = {
        tensor.allocation_info.memory_offset: (index, tensor)
        for index, tensor in plan.tensors()
        if tensor.allocation_info is not None and tensor.allocation_info.memory_id == MEMORY_ID
    }
    notes = []
    for address, state in places.items():
        if address not in values:
            raise MismatchError(f"the state {state.name!r} was planned at {address}, but no value has that address")
        index, tensor = values[address]
        if state.initialized != (tensor.data_buffer_idx > 0):
            raise MismatchError(
                f"the state {state.name!r} lost or gained its initial content (value {index} of the method)"
            )
        notes.append(StateNote(index, state.name, state.initialized))
    return tuple(sorted(notes, key=lambda note: note.value))


def _sources(origins: list[Origin], lines: SourceLines) -> dict[int, Source]:
    found = ((index, lines.of(ops_of(origin.module, origin.node))) for index, origin in enumerate(origins))
    return {index: source for index, source in found if source is not None}


def _modules(origins: list[Origin]) -> dict[int, str]:
    found = ((index, module_of(origin.module, origin.node)) for index, origin in enumerate(origins))
    return {index: path for index, path in found if path is not None}


def _outputs(origins: list[Origin], lines: SourceLines | None) -> dict[int, tuple[OutputNote, ...]]:
    found = {}
    for index, origin in enumerate(origins):
        lowered = lowered_module(origin.module, origin.node)
        if lowered is not None:
            module = lowered.original_module.graph_module
            found[index] = tuple(_output(module, node, lines) for node in _user_outputs(lowered.original_module))
    return found


def _user_outputs(program: ExportedProgram) -> Iterator[Node]:
    """Yield the nodes of a delegate's outputs. Skip new values of state, which the graph also returns."""
    from torch.export.graph_signature import OutputKind

    (results,) = program.graph.output_node().args
    for node, spec in zip(results, program.graph_signature.output_specs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            yield node


def _output(module: GraphModule, node: Node, lines: SourceLines | None) -> OutputNote:
    """Return the note on an output, with the module and the source line of the op that computes the output.

    Quantization adds ops without a module. Instead of such an op, use the nearest earlier op that has a module.
    """
    found = node
    while module_path(found) is None and any(item.op == "call_function" for item in found.all_input_nodes):
        found = next(item for item in found.all_input_nodes if item.op == "call_function")
    path = module_path(found)
    return OutputNote(path, None if lines is None else lines.of(ops_of(module, node if path is None else found)))


def _debug_handles(origins: list[Origin], handles: Handles) -> dict[int, tuple[int, ...]]:
    return {
        index: handles[origin.node] for index, origin in enumerate(origins) if origin.whole and origin.node in handles
    }
