"""The build of one target: runs the stages in order, and moves the files to their final paths."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from etdev.files import file_sha256
from etdev.inspection.measure import measure_program
from etdev.kernel_trials.custom_ops import InPlaceOps, resolve_ops
from etdev.pipeline.builder.compile import (
    BuildSession,
    Compiled,
    CompiledMethod,
    compile_method,
    compile_target,
    keep_reference,
)
from etdev.pipeline.builder.finished import Finished, keep_finished
from etdev.pipeline.builder.garbage import rare_collections
from etdev.pipeline.builder.report_file import display_path, report_text
from etdev.pipeline.builder.summary import (
    describe_constant_outputs,
    describe_float_ops,
    describe_heap,
    describe_repeated,
    describe_state,
    describe_unguarded,
    describe_unused,
    with_memory,
)
from etdev.pipeline.cache import Cache, FileAccess, Reads, Watch, locked_facts
from etdev.pipeline.cache.import_closure import imported_files
from etdev.pipeline.cache.lock import LockedTarget
from etdev.pipeline.project import Project
from etdev.pipeline.project.imports import register_imports
from etdev.pipeline.project.options import BuildOptions, required_checks
from etdev.pipeline.project.places import sidecar_place
from etdev.pipeline.project.progress import StageClock
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.project.runtime_contents import check_runtime_settings
from etdev.pipeline.project.stock import runtime_for
from etdev.pipeline.project.user_modules import LIBRARIES
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.notes import LINKED_AGAIN, QUANTIZED_AGAIN
from etdev.pipeline.results.result import CheckResult, DataFile, FileBeside, TargetResult, outcome
from etdev.pipeline.stages.artifacts import WrittenProgram
from etdev.pipeline.stages.link.linking import LinkedProgram, link_program
from etdev.pipeline.stages.link.nested import describe_nested, memory_by_device
from etdev.pipeline.stages.lower import require_backends
from etdev.pipeline.stages.models import Models
from etdev.pipeline.stages.staging import StagedObjects, StagedTarget
from etdev.pipeline.stages.write import write_files, write_linked_record, write_operators
from etdev.program.data_files.joined import names_in
from etdev.program.footprint import planned_memory
from etdev.verification.order import prepare, unverified, verify
from etdev.verification.subject import BuiltTarget, Subject


def check_target(project: Project, name: str) -> None:
    """Raise an error early if this machine cannot build the target."""
    require_backends(project, name)
    check_runtime_settings(project, name)


@contextmanager
def build_session(project: Project, options: BuildOptions, cache: Cache) -> Iterator[BuildSession]:
    """Provide a session for building targets one after another; the session loads and exports each model once.

    Inside the block, all printed output goes to stderr, and Python can import the project's modules.
    """
    with (
        rare_collections(),
        quiet_libraries(verbose=options.verbose),
        UserCode() as user,
        Watch([project.loaded.root], _own_places(project, cache)) as watch,
        runtime_for(project) if options.verify else nullcontext() as runtime,
    ):
        yield BuildSession(project, options, user, cache, watch, runtime, Models(project, user), FileAccess())


def compile_part(session: BuildSession, name: str, method: str, folder: Path) -> CompiledMethod:
    """Compile one method of a target into a folder.

    Raises an error if the compilation fails.
    """
    try:
        _register(session, name)
        return compile_method(session, name, method, folder)
    finally:
        session.options.progress.ended(f"{name} {method}")


def build_target(session: BuildSession, name: str, parts: Sequence[CompiledMethod] = ()) -> Finished:
    """Build and verify a target, and store it in the cache if it is good.

    If the target's methods were compiled one by one, ``parts`` are the compiled methods in the config's order. Raises
    an error if a stage fails.
    """
    clock = StageClock(name, session.options.progress)
    try:
        return _build_target(session, name, clock, parts)
    finally:
        session.options.progress.ended(name)


def _own_places(project: Project, cache: Cache) -> list[Path]:
    """Return the files and folders that etdev itself reads and writes during a build."""
    apart = project.out != project.loaded.root and project.out not in project.loaded.root.parents
    libraries = [Path(path) for path in (*LIBRARIES, sys.prefix, sys.base_prefix)]
    return [*project.files, *([project.out] if apart else []), cache.store.folder, *libraries]


def _register(session: BuildSession, name: str) -> None:
    """Import the functions that verification calls, and check the first samples, before the slow stages run."""
    if session.runtime is not None:
        register_imports(session.project, session.user)
        prepare(session.project, session.user, name)
        session.models.check_samples()


def _build_target(session: BuildSession, name: str, clock: StageClock, parts: Sequence[CompiledMethod]) -> Finished:
    project = session.project
    _register(session, name)
    inplace = resolve_ops(project, name, session.user)
    with StagedObjects(project, name) as staged_objects, ExitStack() as stack:
        with staged_objects.places_named():
            compiled = compile_target(session, name, clock, staged_objects.folder, parts)
        signatures = compiled.models[1].signatures if compiled.models else session.models.signatures(clock)
        with clock.stage("link"):
            tilings = [method.tiling for method in compiled.record.methods]
            program = link_program(project, name, session.user, compiled.objects, signatures, inplace, tilings)
        staged = stack.enter_context(StagedTarget(project, name, staged_objects, program.data.names))
        with clock.stage("write"):
            written = write_files(program.linked.program, program.data, staged)
            if project.config.targets[name].etrecord:
                write_linked_record(compiled.objects, program, staged.record)
            operators = _written_operators(project, name, program, staged)
        checks = _verified(session, name, compiled, program, written, inplace, clock)
        if compiled.models is not None:
            keep_reference(project, name, session.cache, compiled.models[1], compiled.reads)
        reads = _reads(session, name, compiled)
        status = outcome(checks)
        artifact = staged.program.rejected if status == "rejected" else staged.program.target
        result = TargetResult(
            name=name,
            status=status,
            artifact=display_path(project, artifact),
            size=written.program.size,
            sha256=written.program.sha256,
            data=tuple(_data(program, written, staged)),
            operators=operators,
            quantize=compiled.record.scheme,
            methods=with_memory(compiled.record.methods, program, compiled.objects.sidecar.delegates),
            memory=planned_memory(program.linked.program),
            sidecar_sha256=file_sha256(sidecar_place(compiled.objects.path)),
            nested_memory=memory_by_device(program.nested),
            planner=program.linked.planner,
            shared_state=program.linked.shared_state,
            banks=program.linked.banks,
            checks=checks,
            required=required_checks(project, name, session.options),
            seconds=clock.seconds,
            figures=measure_program(
                program.linked.program,
                written.program.size,
                compiled.record.methods,
                project.config.targets[name].memory.bank_names,
                pooled=names_in(written.weights),
            ),
            split_state=compiled.record.split_state,
            notes=tuple(_notes(session, name, compiled, program, inplace, checks, clock)),
        )
        staged.write_report(report_text(project, result))
        staged.settle(rejected=status == "rejected")
    changed = tuple(sorted(session.cache.changed))
    finished = Finished(result=result, locked=_locked(project, result, reads), changed=changed)
    keep_finished(session, finished, compiled)
    return finished


def _written_operators(project: Project, name: str, program: LinkedProgram, staged: StagedTarget) -> FileBeside | None:
    """Write the list of operators that the program needs; return None if the config does not request the list."""
    if not project.config.targets[name].selected_operators:
        return None
    written = write_operators(program.linked.program, project.artifact(name), staged.operators)
    return FileBeside(name=staged.operators.target.name, size=written.size, sha256=written.sha256)


def _verified(
    session: BuildSession,
    name: str,
    compiled: Compiled,
    program: LinkedProgram,
    written: WrittenProgram,
    inplace: InPlaceOps,
    clock: StageClock,
) -> tuple[CheckResult, ...]:
    """Verify the written files, and return the results of all checks."""
    if session.runtime is None or compiled.models is None:
        return unverified()
    float_model, reference = compiled.models
    built = BuiltTarget(
        session.project,
        session.user,
        name,
        written.program.path,
        written.program.size,
        float_model,
        reference,
        linked=program,
        inplace=inplace.table,
        methods=compiled.record.methods,
        data=tuple(file.path for file in written.data),
        weights=written.weights,
        lookups=compiled.objects.sidecar.lookups,
        records=compiled.objects.sidecar.delegates,
        notes=program.notes,
        jobs=session.options.metric_jobs,
        count=clock.count("verify"),
    )
    with clock.stage("verify"):
        return verify(Subject.read_built(built, session.runtime, session.options.device_map))


def _notes(
    session: BuildSession,
    name: str,
    compiled: Compiled,
    program: LinkedProgram,
    inplace: InPlaceOps,
    checks: Sequence[CheckResult],
    clock: StageClock,
) -> Iterator[str]:
    """Yield the notes on a target, in the order of the report."""
    yield from compiled.record.notes
    yield from map(str, inplace.tried)
    yield from describe_nested(program.nested)
    yield from describe_state(program.linked.program)
    yield from describe_unused(session.project, name, program.linked.program)
    yield from describe_heap(session.project, name, compiled.record.methods, program.linked.program)
    yield from describe_repeated(session.project, name, program.linked.program, program.data)
    yield from describe_float_ops(session.project, name, compiled.record.methods)
    yield from describe_unguarded(session.project, name, checks)
    yield from describe_constant_outputs(checks)
    if LINKED_AGAIN in compiled.record.notes and "quantize" in clock.seconds:
        yield QUANTIZED_AGAIN
    if session.cache.changed:
        changed = ", ".join(sorted(session.cache.changed))
        yield f"the target is neither in the cache nor in the lock: {changed} changed during the build"


def _data(program: LinkedProgram, written: WrittenProgram, staged: StagedTarget) -> Iterator[DataFile]:
    for file, place in zip(written.data, staged.data.values(), strict=True):
        name = place.target.name
        yield DataFile(name=name, size=file.size, sha256=file.sha256, of_delegates=name in program.data.delegates)


def _reads(session: BuildSession, name: str, compiled: Compiled) -> Reads:
    """Return the reads of a target: those of its object program, and the modules of a planner in the project's code."""
    planner = session.project.config.targets[name].memory.planner
    modules = imported_files([planner.partition(":")[0]], session.user.modules()) if ":" in planner else set()
    return compiled.reads.joined(session.cache.reads(session.project, modules))


def _locked(project: Project, result: TargetResult, reads: Reads) -> LockedTarget:
    """Return the target's entry for the lock: digests and figures of the built files, and all inputs of the build."""
    assert result.figures is not None
    facts = locked_facts(project, result.name)
    return LockedTarget(
        sha256=result.sha256,
        data={item.name: item.sha256 for item in result.data},
        figures=result.figures,
        versions=facts.versions,
        settings=facts.settings,
        files=reads.files,
        folders=reads.folders,
        packages=reads.packages,
    )
