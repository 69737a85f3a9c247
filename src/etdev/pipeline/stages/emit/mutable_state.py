"""State: buffers that retain their content from one call to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from etdev.errors import EmitError
from etdev.pipeline.project import Project
from etdev.pipeline.stages.artifacts import ExportedModel, LoweredModel
from etdev.pipeline.stages.emit.graphs import lowered_modules
from etdev.program.model import ExecutionPlan, ExtraTensorInfo, Tensor
from etdev.program.sidecar import MethodNotes

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


@dataclass(frozen=True, slots=True)
class State:
    """A state buffer of one method."""

    name: str
    """Name of the buffer in the user's module."""
    initialized: bool
    """True if the initial value has a byte that is not zero.

    The file stores such an initial value. The runtime zeroes other states.
    """


def find_state(project: Project, lowered: LoweredModel, exported: ExportedModel, method: str) -> dict[str, State]:
    """Return the state buffers of a method, by the names of their placeholders in the lowered graph.

    The result contains all buffers that the method changes. If methods share state, it also contains buffers that this
    method reads and another method changes. Raises :class:`~etdev.errors.EmitError` if a delegate has its own copy of a
    state, because no instruction updates that copy.
    """
    program = lowered.manager.exported_program(method)
    buffers: Mapping[str, str] = program.graph_signature.inputs_to_buffers
    shared = (
        frozenset(name for name, users in find_common(lowered, exported).items() if method in users)
        if project.config.model.share_state
        else frozenset[str]()
    )
    state = {name: placeholder for placeholder, name in buffers.items() if name in shared}
    changed = set(program.graph_signature.buffers_to_mutate.values())
    state |= {name: placeholder for placeholder, name in buffers.items() if name in changed}
    for name in sorted((shared | set(state)) & _inside_delegates(program)):
        raise EmitError(
            f"in method {method!r}, a delegate has its own copy of the state {name!r}; changes by ops outside the "
            "delegate do not reach that copy",
            where=project.where("model", "share_state") if name in shared else project.where("methods", method),
            hint="exclude the ops that use this state from the partitioners"
            + (", or give each method its own state (set `model.share_state` to false)" if name in shared else ""),
        )
    return {placeholder: State(name, _has_content(_initial(program, name))) for name, placeholder in state.items()}


def with_names(plan: ExecutionPlan, notes: MethodNotes) -> ExecutionPlan:
    """Return the emitted method, with the name of each state in the state's tensor.

    ExecuTorch's ``emit_mutable_buffer_names`` would set the same names.
    """
    values = list(plan.values)
    for note in notes.state:
        tensor = values[note.value]
        assert isinstance(tensor, Tensor)
        info = tensor.extra_tensor_info or ExtraTensorInfo()
        values[note.value] = replace(tensor, extra_tensor_info=replace(info, fully_qualified_name=note.name))
    return replace(plan, values=tuple(values))


def find_common(lowered: LoweredModel, exported: ExportedModel) -> dict[str, list[str]]:
    """Return each buffer that several methods use, if at least one of these methods changes the buffer.

    The result maps each buffer to the methods that use the buffer, in order.
    """
    if len(exported.methods) < 2:
        return {}
    changed = {name for each in lowered.methods for name in _changed(lowered.manager.exported_program(each))}
    for other in exported.methods.keys() - set(lowered.methods):
        changed.update(_changed_unlowered(exported.methods[other].program))
    users: dict[str, list[str]] = {}
    for method, each in exported.methods.items():
        for name in _used(each.program):
            users.setdefault(name, []).append(method)
    return {name: found for name, found in users.items() if len(found) > 1 and name in changed}


def _changed(program: ExportedProgram) -> Iterator[str]:
    """Yield the buffers that a lowered method changes, on the host or in a delegate.

    This requires a lowered method: before lowering, in-place ops hide the changes.
    """
    yield from program.graph_signature.buffers_to_mutate.values()
    for delegate in lowered_modules(program.graph_module):
        yield from delegate.original_module.graph_signature.buffers_to_mutate.values()


def _changed_unlowered(program: ExportedProgram) -> Iterator[str]:
    """Yield the buffers that an exported method changes. The method must not have been lowered."""
    yield from program.run_decompositions({}).graph_signature.buffers_to_mutate.values()


def _used(program: ExportedProgram) -> Iterator[str]:
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.users and node.name in program.graph_signature.inputs_to_buffers:
            yield program.graph_signature.inputs_to_buffers[node.name]


def _inside_delegates(program: ExportedProgram) -> set[str]:
    """Return the names of the buffers that are copied into a delegate of the method."""
    return {
        name
        for delegate in lowered_modules(program.graph_module)
        for name in delegate.original_module.graph_signature.inputs_to_buffers.values()
    }


def _initial(program: ExportedProgram, name: str) -> torch.Tensor:
    value: torch.Tensor = program.state_dict[name] if name in program.state_dict else program.constants[name]
    return value


def _has_content(value: torch.Tensor) -> bool:
    import torch

    return bool(value.detach().contiguous().reshape(-1).view(torch.uint8).any())
