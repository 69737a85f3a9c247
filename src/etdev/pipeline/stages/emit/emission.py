"""Stage *emit*: makes the object program, in which every tensor has an address of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.compat import TESTED
from etdev.errors import EmitError, WriteError
from etdev.files import atomic_path, describe_os_error
from etdev.pipeline.project import Project
from etdev.pipeline.project.places import record_place, sidecar_place
from etdev.pipeline.project.source_lines import SourceLines
from etdev.pipeline.stages.artifacts import Emitted, EmittedFiles, EmittedTrial, ExportedModel, LoweredModel
from etdev.pipeline.stages.emit.dim_orders import edge_clone, set_plain_orders, set_written_orders
from etdev.pipeline.stages.emit.direct import emit_directly
from etdev.pipeline.stages.emit.external_data import data_names, put_data_inside
from etdev.pipeline.stages.emit.instructions import MismatchError
from etdev.pipeline.stages.emit.method_notes import describe_method
from etdev.pipeline.stages.emit.mutable_state import find_state, with_names
from etdev.pipeline.stages.emit.record import save_record
from etdev.pipeline.stages.emit.virtual_addresses import VirtualAddresses
from etdev.pipeline.stages.emit.without_devices import hidden_devices, with_devices
from etdev.pipeline.stages.lower_errors import explain_emission
from etdev.pipeline.stages.ranges import fixed_ranges
from etdev.pipeline.stages.writes import rename_inputs, separate_writes
from etdev.program import Program, read, write
from etdev.program.data_files.assignment import merge_data_files
from etdev.program.merge import merge_methods
from etdev.program.model import ExecutionPlan, Tensor
from etdev.program.segments import SEGMENT_ALIGNMENT
from etdev.program.sidecar import MethodNotes, Sidecar, read_sidecar, write_sidecar
from etdev.program.writer import write_into

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager
    from torch.export import ExportedProgram


@dataclass(frozen=True, slots=True)
class ObjectProgram(Emitted):
    """An emitted program in a file. Weights and blobs are read from the file only when needed."""

    path: Path
    """Path of the ``.object.pte``. The ``.object.json`` next to it contains the sidecar."""


def emit_object(
    project: Project, lowered: LoweredModel, exported: ExportedModel, target: str, path: Path
) -> ObjectProgram:
    """Emit the lowered methods to ``path``, and write the sidecar next to it.

    ``lowered`` cannot be used again, because its graphs change. The sidecar is written last: if it exists, all files
    belong together. If the target's config requests an ETRecord, write the ETRecord; otherwise remove the ETRecord of
    an earlier build.

    Raises :class:`~etdev.errors.WriteError` if writing fails, and :class:`~etdev.errors.EmitError` in these cases:

    * An op has no out variant.
    * The emitted program does not accept inputs of the declared sizes.
    * The emitted program does not match the graphs.
    * ExecuTorch cannot serialize the graphs for an ETRecord.

    After an error, the file at ``path`` is unchanged.
    """
    if isinstance(lowered.emitted, EmittedFiles):
        return _moved(lowered.emitted, path)
    direct = lowered.emitted or emit_trial(project, lowered, exported, target)
    if direct is not None:
        return _written(project, direct.complete(), exported, path)
    plannings = {name: VirtualAddresses(find_state(project, lowered, exported, name)) for name in lowered.methods}
    with hidden_devices(lowered):
        manager = _to_executorch(project, lowered, exported, target, plannings)
    notes_place = sidecar_place(path)
    with atomic_path(path) as temporary:
        with temporary.open("wb") as file:
            manager.write_to_file(file)
        program, data_files = put_data_inside(project, target, manager, temporary)
        sidecar = Sidecar(_describe(project, manager, program, target, plannings), data_files, lowered.records)
        program = _completed(program, sidecar, temporary)
        for name in lowered.methods:
            _check_planned_sizes(project, program.method(name), exported)
        if project.config.targets[target].etrecord:
            with atomic_path(record_place(path)) as unfinished:
                graphs = {name: sidecar.methods[name] for name in lowered.methods}
                save_record(project, target, manager, program, graphs, unfinished)
                notes_place.unlink(missing_ok=True)
        else:
            notes_place.unlink(missing_ok=True)
            record_place(path).unlink(missing_ok=True)
    write_sidecar(sidecar, notes_place)
    return ObjectProgram(replace(program, segment_alignment=SEGMENT_ALIGNMENT), sidecar, path)


def emit_trial(project: Project, lowered: LoweredModel, exported: ExportedModel, target: str) -> EmittedTrial | None:
    """Emit the lowered methods in memory; return None if only ExecuTorch can emit them.

    This function changes the graphs of ``lowered``. After the call, only :func:`emit_object` can use these graphs.
    Raises :class:`~etdev.errors.EmitError` in the same cases as :func:`emit_object`.
    """
    import torch

    try:
        with torch.no_grad():
            for name in lowered.methods:
                program = lowered.manager.exported_program(name)
                with fixed_ranges(exported.methods[name].program):
                    rename_inputs(program)
                    separate_writes(program, edge_clone)
                    set_plain_orders(program)
                    set_written_orders(program)
    except Exception as error:
        programs = [lowered.manager.exported_program(name) for name in lowered.methods]
        raise explain_emission(error, project, target, programs) from error
    return emit_directly(project, lowered, exported, target)


def read_object(path: Path) -> Program:
    """Return the object program at ``path``.

    The result always has the segment alignment that ExecuTorch and etdev use. By chance, the offsets in the file could
    suggest a larger alignment. Raises :class:`~etdev.errors.ProgramError`.
    """
    return replace(read(path), segment_alignment=SEGMENT_ALIGNMENT)


def _written(project: Project, direct: Emitted, exported: ExportedModel, path: Path) -> ObjectProgram:
    """Write a directly emitted program to ``path``, and the sidecar next to ``path``."""
    notes_place = sidecar_place(path)
    with atomic_path(path) as temporary:
        write(direct.program, temporary)
        for plan in direct.program.execution_plan:
            _check_planned_sizes(project, plan, exported)
        notes_place.unlink(missing_ok=True)
        record_place(path).unlink(missing_ok=True)
    write_sidecar(direct.sidecar, notes_place)
    return ObjectProgram(read_object(path), direct.sidecar, path)


def _moved(emitted: EmittedFiles, path: Path) -> ObjectProgram:
    """Move an object program's files from the temporary folder of lowering to the final paths, the sidecar last."""
    sidecar_place(path).unlink(missing_ok=True)
    record_place(path).unlink(missing_ok=True)
    notes = sidecar_place(emitted.path)
    for file in sorted(Path(emitted.folder.name).iterdir(), key=lambda file: file == notes):
        try:
            file.replace(path.with_name(file.name))
        except OSError as error:
            message, hint = describe_os_error(error)
            raise WriteError(message, where=str(path), hint=hint) from error
    return ObjectProgram(read_object(path), read_sidecar(sidecar_place(path)), path)


def merge_objects(parts: Mapping[str, Path], path: Path) -> ObjectProgram:
    """Merge object programs with one method each into one object program at ``path``.

    ``parts`` maps each method to the path of its object program. The result equals that of :func:`emit_object` for all
    methods, but has no ETRecord. Raises :class:`~etdev.errors.WriteError`.
    """
    sidecars = {name: read_sidecar(sidecar_place(part)) for name, part in parts.items()}
    program = merge_methods({name: read(part) for name, part in parts.items()})
    known = {name: notes for sidecar in sidecars.values() for name, notes in sidecar.methods.items()}
    notes = {plan.name: known[plan.name] for plan in program.execution_plan}
    records = {digest: record for one in sidecars.values() for digest, record in one.delegates.items()}
    sidecar = Sidecar(notes, merge_data_files([one.data_files for one in sidecars.values()]), records)
    with atomic_path(path) as temporary:
        write_into(program, temporary)
        sidecar_place(path).unlink(missing_ok=True)
        record_place(path).unlink(missing_ok=True)
    write_sidecar(sidecar, sidecar_place(path))
    return ObjectProgram(read_object(path), sidecar, path)


def _to_executorch(
    project: Project,
    lowered: LoweredModel,
    exported: ExportedModel,
    target: str,
    plannings: dict[str, VirtualAddresses],
) -> ExecutorchProgramManager:
    import torch
    from executorch.exir import ExecutorchBackendConfig

    if _uses_quantized_ops(lowered):
        import executorch.kernels.quantized  # noqa: F401 - registers the out variants of quantized_decomposed
    # `remove_view_copy` stays off: otherwise emission would give a view of a branch's result a fixed address.
    # `VirtualAddresses` sets the names of states.
    config = ExecutorchBackendConfig(remove_view_copy=False, memory_planning_pass=dict(plannings))
    try:
        # With gradients enabled, a buffer that the emitter writes would require gradients from then on, also while the
        # next target is lowered.
        with torch.no_grad(), ExitStack() as stack:
            for name in lowered.methods:
                stack.enter_context(fixed_ranges(exported.methods[name].program))
                _generate_code(lowered.manager.exported_program(name))
            manager: ExecutorchProgramManager = lowered.manager.to_executorch(config)
    except Exception as error:
        programs = [lowered.manager.exported_program(name) for name in lowered.methods]
        raise explain_emission(error, project, target, programs) from error
    return manager


def _generate_code(program: ExportedProgram) -> None:
    """Generate the code of all graphs again, because kernel-aware lowering has changed only the graphs."""
    from torch.fx import GraphModule

    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            module.recompile()


def _uses_quantized_ops(lowered: LoweredModel) -> bool:
    return any("quantized_decomposed" in item.op for part in lowered.delegations for item in part.undelegated)


def _describe(
    project: Project,
    manager: ExecutorchProgramManager,
    program: Program,
    target: str,
    plannings: dict[str, VirtualAddresses],
) -> dict[str, MethodNotes]:
    lines = SourceLines(project.loaded.root)
    notes = {plan.name: MethodNotes() for plan in program.execution_plan}  # Constant methods keep empty notes.
    for name, planning in plannings.items():
        graph: Any = manager.exported_program(name).graph_module
        try:
            described = describe_method(graph, program.method(name), planning, lines)
            notes[name] = replace(described, data_names=data_names(graph))
        except MismatchError as error:
            raise EmitError(
                f"the emitted method {name!r} does not match its graph: {error}",
                where=project.where("targets", target),
                hint=f"use executorch {' or '.join(TESTED)}, or report this and attach the model",
            ) from error
    return notes


def _completed(program: Program, sidecar: Sidecar, path: Path) -> Program:
    """Add the names of states to the emitted program, and restore its ``target_device`` keys.

    If the program changes, write it to ``path`` again.
    """
    plans = tuple(with_names(with_devices(plan), sidecar.methods[plan.name]) for plan in program.execution_plan)
    if plans == program.execution_plan:
        return program
    write(replace(program, execution_plan=plans), path)
    return read(path)


def _check_planned_sizes(project: Project, plan: ExecutionPlan, exported: ExportedModel) -> None:
    """Raise an error if a method does not accept inputs up to their declared maximum sizes.

    The file states maximum sizes, because memory is planned for them.
    """
    signature = exported.signatures[plan.name]
    for item, index, shape in zip(signature.inputs, plan.inputs, signature.sizes(signature.largest()), strict=False):
        value = plan.values[index]
        if not isinstance(value, Tensor) or value.sizes != shape:
            found = list(value.sizes) if isinstance(value, Tensor) else type(value).__name__
            raise EmitError(
                f"the emitted method {plan.name!r} takes {item.name!r} up to {found}, but the config declares "
                f"{list(shape)}",
                where=project.where("methods", plan.name, "inputs"),
                hint="lowering narrowed a dynamic dimension; declare a fixed size for the dimension, or report "
                "this and attach the model",
            )
