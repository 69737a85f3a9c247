"""A whole build: the stages in order, for every target, and what becomes of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from etdev.files import atomic_write_text
from etdev.pipeline.artifacts import ExportedModel
from etdev.pipeline.etrecord import record_place
from etdev.pipeline.inplace_ops import resolve_ops
from etdev.pipeline.inputs import Signature
from etdev.pipeline.link import link_program
from etdev.pipeline.load import register_imports
from etdev.pipeline.lower import lower_model, require_backends
from etdev.pipeline.models import Models
from etdev.pipeline.nested import describe_nested, memory_by_device
from etdev.pipeline.noise import quiet_libraries
from etdev.pipeline.objects import ObjectProgram, emit_object, object_place
from etdev.pipeline.objects.reuse import Record, find_object, origin_of
from etdev.pipeline.options import BuildOptions, choose_targets, required_rungs, runtime_for
from etdev.pipeline.progress import StageClock
from etdev.pipeline.project import Project
from etdev.pipeline.result import RUNGS, BuildResult, TargetResult, outcome
from etdev.pipeline.summary import (
    describe_methods,
    describe_state,
    describe_unused,
    display_path,
    start_result,
    with_memory,
)
from etdev.pipeline.usercode import UserCode
from etdev.pipeline.verify.kernels import check_runtime_settings
from etdev.pipeline.verify.ladder import Candidate, check_functions, not_run, verify_program
from etdev.pipeline.write import StagedFile, write_linked_record, write_program
from etdev.program.footprint import planned_memory
from etdev.runtime.stock import StockRuntime


def build_project(project: Project, options: BuildOptions) -> BuildResult:
    """Build the chosen targets, one after the other.

    Raises a :class:`~etdev.errors.EtdevError` if a stage fails; artifacts of targets that were finished before stay. A
    rejected artifact or a missed gate is a result, not an error: the other targets are built all the same.
    """
    names = choose_targets(project, options.targets)
    for name in names:
        require_backends(project, name)
        check_runtime_settings(project, name)
    with quiet_libraries(verbose=options.verbose), UserCode() as user, _stock_runtime(project, options) as runtime:
        models = Models(project, user)
        results = tuple(_build_target(project, name, options, user, runtime, models) for name in names)
    return start_result(project, results, options.device_map)


@contextmanager
def _stock_runtime(project: Project, options: BuildOptions) -> Iterator[StockRuntime | None]:
    if not options.verify:
        yield None
        return
    with runtime_for(project) as runtime:
        yield runtime


def _build_target(
    project: Project, name: str, options: BuildOptions, user: UserCode, runtime: StockRuntime | None, models: Models
) -> TargetResult:
    clock = StageClock(name, options.progress)
    if runtime is not None:
        register_imports(project, user)
        check_functions(project, user, name)
    inplace = resolve_ops(project, name, user)
    compiled = _compile(project, name, options, user, models, clock)
    with clock.stage("link"):
        program = link_program(project, name, user, compiled.objects, compiled.signatures, inplace)
    with StagedFile(project.artifact(name)) as staged, StagedFile(record_place(project.artifact(name))) as record:
        with clock.stage("write"):
            written = write_program(program.linked.program, staged)
            if project.config.targets[name].etrecord:
                write_linked_record(compiled.objects, program, record)
        result = TargetResult(
            name=name,
            status="built",
            artifact="",
            size=written.size,
            sha256=written.sha256,
            quantize=compiled.record.scheme,
            methods=with_memory(compiled.record.methods, program),
            memory=planned_memory(program.linked.program),
            nested_memory=memory_by_device(program.nested),
            planner=program.linked.planner,
            shared_state=program.linked.shared_state,
            required=required_rungs(project, name, options),
            notes=(
                *compiled.notes,
                *(str(tried) for tried in inplace.tried),
                *describe_nested(program.nested),
                *describe_state(program.linked.program),
                *describe_unused(project, name, program.linked.program),
            ),
        )
        if runtime is None or compiled.models is None:
            rungs = tuple(not_run(rung, "verification was turned off") for rung in RUNGS)
        else:
            candidate = Candidate(written.path, written.size, *compiled.models, program, inplace.table)
            with clock.stage("verify"):
                rungs = verify_program(
                    project,
                    user,
                    name,
                    candidate,
                    runtime,
                    options.device_map,
                    jobs=options.jobs,
                    count=clock.count("verify"),
                )
        result = result.model_copy(update={"rungs": rungs, "status": outcome(rungs)})
        record.withdraw()  # At no time is it beside another program.
        place = staged.reject() if result.status == "rejected" else staged.accept()
        if result.status != "rejected" and project.config.targets[name].etrecord:
            record.accept()
    result = result.model_copy(update={"artifact": display_path(project, place), "seconds": clock.seconds})
    report = start_result(project, (result,), None)
    atomic_write_text(place.parent / "report.json", report.model_dump_json(indent=2) + "\n")
    return result


@dataclass(frozen=True)
class _Compiled:
    """An object program, made now or by an earlier build."""

    objects: ObjectProgram
    record: Record
    signatures: Mapping[str, Signature]
    models: tuple[ExportedModel, ExportedModel] | None
    """The float model and the one that was lowered; None if nobody asks for them."""
    notes: tuple[str, ...]


def _compile(
    project: Project, name: str, options: BuildOptions, user: UserCode, models: Models, clock: StageClock
) -> _Compiled:
    reused = find_object(project, name) if options.cache else None
    if reused is None:
        return _compile_anew(project, name, user, models, clock)
    found = models.prepare_unexported(name, reused.record.outputs, clock) if options.verify else None
    signatures = found[1].signatures if found else models.signatures(clock)
    notes = (
        *reused.record.notes,
        "linked again: nothing before the link has changed since the last build",
    )
    return _Compiled(reused.objects, reused.record, signatures, found, notes)


def _compile_anew(project: Project, name: str, user: UserCode, models: Models, clock: StageClock) -> _Compiled:
    float_model, reference = models.prepare(name, clock)
    with clock.stage("lower"):
        lowered = lower_model(project, reference, name)
    record = Record(
        methods=describe_methods(lowered, reference),
        scheme=reference.scheme,
        outputs=dict(reference.outputs),
        notes=models.notes,
    )
    with clock.stage("emit"):
        origin = origin_of(project, name, user, record)
        objects = emit_object(project, lowered, reference, name, object_place(project, name), origin=origin)
    return _Compiled(objects, record, reference.signatures, (float_model, reference), models.notes)
