"""The build of one target: runs the stages in order and puts the files in place."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from etdev.files import file_sha256
from etdev.inspection.measure import figures_of
from etdev.kernel_trials.custom_ops import resolve_ops
from etdev.pipeline.builder.compile import BuildSession, Compiled, Part, compile_method, compile_target, keep_reference
from etdev.pipeline.builder.finished import Finished, keep_finished
from etdev.pipeline.builder.report_file import display_path, report_text
from etdev.pipeline.builder.summary import describe_state, describe_unguarded, describe_unused, with_memory
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
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.notes import LINKED_AGAIN, QUANTIZED_AGAIN
from etdev.pipeline.results.result import DataFile, FileBeside, TargetResult, outcome
from etdev.pipeline.stages.artifacts import WrittenFile, WrittenProgram
from etdev.pipeline.stages.link import LinkedProgram, link_program
from etdev.pipeline.stages.lower import require_backends
from etdev.pipeline.stages.models import Models
from etdev.pipeline.stages.nested import describe_nested, memory_by_device
from etdev.pipeline.stages.staging import StagedFile, StagedObjects, StagedTarget
from etdev.pipeline.stages.write import write_files, write_linked_record, write_operators
from etdev.program.footprint import planned_memory
from etdev.runtime.stock import StockRuntime
from etdev.verification.order import prepare, unverified, verify
from etdev.verification.subject import BuiltTarget, Subject


def check_target(project: Project, name: str) -> None:
    """Fail early if this machine cannot build the target."""
    require_backends(project, name)
    check_runtime_settings(project, name)


class Builder:
    """A builder of targets, one after another, from models that are loaded and exported once.

    Use it as a context manager. Inside, all printed output goes to stderr, and the project's modules can be imported.
    """

    def __init__(self, project: Project, options: BuildOptions, cache: Cache) -> None:
        self._project, self._options, self._cache = project, options, cache
        self._open = ExitStack()

    def __enter__(self) -> Self:
        project, options, cache = self._project, self._options, self._cache
        with self._open:
            enter = self._open.enter_context
            enter(quiet_libraries(verbose=options.verbose))
            user = enter(UserCode())
            watch = enter(Watch([project.loaded.root], _own_places(project, cache)))
            self._runtime = enter(_stock_runtime(project, options))
            self._session = BuildSession(project, options, user, cache, watch, Models(project, user), FileAccess())
            self._open = self._open.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def compile(self, name: str, method: str, folder: Path) -> Part:
        """Compile one method of a target into a folder; raise the error that prevents it."""
        try:
            _register(self._session, name, self._runtime)
            return compile_method(self._session, name, method, folder)
        finally:
            self._options.progress.ended(f"{name} {method}")

    def build(self, name: str, parts: Sequence[Part] = ()) -> Finished:
        """Build and verify a target; raise the error that prevents it.

        The cache keeps the target if it is good. ``parts`` are its methods in the config's order, if they were compiled
        one by one.
        """
        try:
            return _build_target(self._session, name, self._runtime, parts)
        finally:
            self._options.progress.ended(name)


def _own_places(project: Project, cache: Cache) -> list[Path]:
    """Return the files and folders that a build itself reads and writes."""
    apart = project.out != project.loaded.root and project.out not in project.loaded.root.parents
    libraries = [Path(path) for path in (*LIBRARIES, sys.prefix, sys.base_prefix)]
    return [*project.files, *([project.out] if apart else []), cache.store.folder, *libraries]


@contextmanager
def _stock_runtime(project: Project, options: BuildOptions) -> Iterator[StockRuntime | None]:
    if not options.verify:
        yield None
        return
    with runtime_for(project) as runtime:
        yield runtime


def _register(session: BuildSession, name: str, runtime: StockRuntime | None) -> None:
    """Import the functions that verification calls, and check the first samples, before the slow stages."""
    if runtime is not None:
        register_imports(session.project, session.user)
        prepare(session.project, session.user, name)
        session.models.check_samples()


def _build_target(session: BuildSession, name: str, runtime: StockRuntime | None, parts: Sequence[Part]) -> Finished:
    project, options, user = session.project, session.options, session.user
    clock = StageClock(name, options.progress)
    _register(session, name, runtime)
    inplace = resolve_ops(project, name, user)
    with StagedObjects(project, name) as staged_objects, ExitStack() as stack:
        with staged_objects.places_named():
            compiled = compile_target(session, name, clock, staged_objects.folder, parts)
        with clock.stage("link"):
            program = link_program(project, name, user, compiled.objects, compiled.signatures, inplace)
        staged = stack.enter_context(StagedTarget(project, name, staged_objects, program.data.names))
        with clock.stage("write"):
            written = write_files(program.linked.program, program.data, staged)
            result = _describe(session, name, compiled, program, written, [str(tried) for tried in inplace.tried])
            if project.config.targets[name].etrecord:
                write_linked_record(compiled.objects, program, staged.record)
            if project.config.targets[name].selected_operators:
                operators = write_operators(program.linked.program, project.artifact(name), staged.operators)
                result = result.model_copy(update={"operators": _beside(operators, staged.operators)})
            result = result.model_copy(update={"data": tuple(_data(program, written, staged))})
        figures = figures_of(result, program.linked.program)
        if runtime is None or compiled.models is None:
            checks = unverified()
        else:
            float_model, reference = compiled.models
            built = BuiltTarget(
                project,
                user,
                name,
                written.program.path,
                written.program.size,
                float_model,
                reference,
                linked=program,
                inplace=inplace.table,
                methods=compiled.record.methods,
                data=tuple(file.path for file in written.data),
                lookups=compiled.objects.sidecar.lookups,
                jobs=options.metric_jobs,
                count=clock.count("verify"),
            )
            with clock.stage("verify"):
                checks = verify(Subject.read_built(built, runtime, options.device_map))
        status = outcome(checks)
        rejected = status == "rejected"
        artifact = staged.program.rejected if rejected else staged.program.target
        shown = {"artifact": display_path(project, artifact), "seconds": clock.seconds}
        result = result.model_copy(update={"figures": figures, "checks": checks, "status": status, **shown})
        if compiled.models is not None:
            keep_reference(project, name, session.cache, compiled.models[1], compiled.reads)
        if LINKED_AGAIN in result.notes and "quantize" in clock.seconds:
            result = result.model_copy(update={"notes": (*result.notes, QUANTIZED_AGAIN)})
        locked = _locked(session, result, figures, compiled.reads)
        result = _with_changes(session, result)
        staged.write_report(report_text(project, result))
        staged.settle(rejected=rejected)
    finished = Finished(result=result, locked=locked, changed=tuple(sorted(session.cache.changed)))
    keep_finished(session, finished, compiled)
    return finished


def _describe(
    session: BuildSession,
    name: str,
    compiled: Compiled,
    program: LinkedProgram,
    written: WrittenProgram,
    tried: Sequence[str],
) -> TargetResult:
    """Describe the built target before it is verified.

    ``tried``: notes on the operators that the config allows to work in place, in addition to etdev's own table.
    """
    project, linked = session.project, program.linked
    return TargetResult(
        name=name,
        status="built",
        artifact="",
        size=written.program.size,
        sha256=written.program.sha256,
        quantize=compiled.record.scheme,
        methods=with_memory(compiled.record.methods, program),
        memory=planned_memory(linked.program),
        sidecar_sha256=file_sha256(sidecar_place(compiled.objects.path)),
        nested_memory=memory_by_device(program.nested),
        planner=linked.planner,
        shared_state=linked.shared_state,
        required=required_checks(project, name, session.options),
        notes=(
            *compiled.notes,
            *tried,
            *describe_nested(program.nested),
            *describe_state(linked.program),
            *describe_unused(project, name, linked.program),
            *describe_unguarded(project, name),
        ),
    )


def _beside(written: WrittenFile, staged: StagedFile) -> FileBeside:
    return FileBeside(name=staged.target.name, size=written.size, sha256=written.sha256)


def _data(program: LinkedProgram, written: WrittenProgram, staged: StagedTarget) -> Iterator[DataFile]:
    for file, place in zip(written.data, staged.data.values(), strict=True):
        name = place.target.name
        yield DataFile(name=name, size=file.size, sha256=file.sha256, of_delegates=name in program.data.delegates)


def _with_changes(session: BuildSession, result: TargetResult) -> TargetResult:
    """Add a note on files that were written while the target was built."""
    changed = sorted(session.cache.changed)
    if not changed:
        return result
    note = f"neither cached nor locked: {', '.join(changed)} changed during the build, before or after it was read"
    return result.model_copy(update={"notes": (*result.notes, note)})


def _locked(session: BuildSession, result: TargetResult, figures: Figures, compiled: Reads) -> LockedTarget:
    """Return the lock's entry of a target: its digests, and everything that its bytes depend on."""
    project, user = session.project, session.user
    planner = project.config.targets[result.name].memory.planner
    modules = imported_files([planner.partition(":")[0]], user.modules()) if ":" in planner else set()
    reads = compiled.joined(session.cache.reads(project, sorted(modules), (), FileAccess()))
    facts = locked_facts(project, result.name)
    return LockedTarget(
        sha256=result.sha256,
        data={item.name: item.sha256 for item in result.data},
        figures=figures,
        versions=facts.versions,
        settings=facts.settings,
        files=reads.files,
        folders=reads.folders,
        packages=reads.packages,
    )
