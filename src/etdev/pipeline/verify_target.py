"""Verification of an earlier build's artifacts against the models of their targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from etdev.errors import LoadError, ProgramError
from etdev.files import file_sha256
from etdev.inspection.provenance import provenance
from etdev.kernel_trials.custom_ops import resolve_ops
from etdev.pipeline.builder.compile import Record, find_record, keep_reference, remembering
from etdev.pipeline.builder.report_file import display_path, start_result
from etdev.pipeline.cache import Cache, Reads, object_facts, open_store
from etdev.pipeline.project import Project
from etdev.pipeline.project.baseline_source import check_baseline
from etdev.pipeline.project.commands import build_command
from etdev.pipeline.project.options import BuildOptions, choose_targets, required_checks
from etdev.pipeline.project.places import REJECTED_SUFFIX, data_places, object_place, sidecar_place
from etdev.pipeline.project.progress import StageClock
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.project.requirements import require_packages
from etdev.pipeline.project.runtime_contents import check_runtime_settings
from etdev.pipeline.project.stock import runtime_for
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.report import REPORT, find_report, report_beside
from etdev.pipeline.results.result import BuildResult, TargetResult, outcome
from etdev.pipeline.since_built import change_since_build, since_built
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.known_outputs import KnownOutputs
from etdev.pipeline.stages.models import Models
from etdev.program.sidecar import Sidecar, read_sidecar
from etdev.runtime.stock import StockRuntime
from etdev.verification.order import verify
from etdev.verification.subject import Alteration, BuiltTarget, Subject


def verify_project(project: Project, options: BuildOptions) -> BuildResult:
    """Run the checks on the chosen targets' artifacts in the output folder.

    No file is written or renamed. Raises :class:`~etdev.errors.LoadError` for a missing artifact.
    """
    names = choose_targets(project, options.targets)
    paths = {name: project.artifact(name) for name in names}
    for name, path in paths.items():
        if not path.is_file():
            rejected = path.with_name(path.name + REJECTED_SUFFIX).exists()
            why = "; the last build rejected it" if rejected else ""
            hint = f"run `{build_command(project, name)}` first"
            raise LoadError(f"target {name!r} has no artifact: {path}{why}", hint=hint)
    check_baseline(project, names)
    require_packages(project, names, "verifying")
    for name in names:
        check_runtime_settings(project, name)
    with (
        Cache(open_store()) as cache,
        quiet_libraries(verbose=options.verbose),
        UserCode() as user,
        runtime_for(project) as runtime,
    ):
        models = Models(project, user)
        results = []
        for name in names:
            results.append(_verify_target(project, name, paths[name], options, user, runtime, models, cache))
            options.progress.ended(name)
    return start_result(project, tuple(results), options.device_map)


def _verify_target(
    project: Project,
    name: str,
    path: Path,
    options: BuildOptions,
    user: UserCode,
    runtime: StockRuntime,
    models: Models,
    cache: Cache,
) -> TargetResult:
    clock = StageClock(name, options.progress)
    found = find_record(project, name, cache)
    float_model, reference = _models(project, name, found, models, cache, clock)
    with clock.stage("verify"):
        required = required_checks(project, name, options)
        inplace = resolve_ops(project, name, user)
        size, digest, data = path.stat().st_size, file_sha256(path), data_places(project, name)
        weights = project.config.targets[name].external_weights
        built, sidecar = _built(path, name), _sidecar(project, name)
        change = None if built is None else change_since_build(built, size, digest) or _data_change(built, data)
        alteration = None if change is None else Alteration(change, display_path(project, report_beside(path)))
        since = since_built(project, name)
        built_target = BuiltTarget(
            project,
            user,
            name,
            path,
            size,
            float_model,
            reference,
            inplace=inplace.table,
            methods=built.methods if built is not None and change is None else (),
            data=data,
            weights=project.artifact(name).with_name(weights) if weights is not None else None,
            lookups=sidecar.lookups,
            records=sidecar.delegates,
            notes=provenance(path, digest).notes,
            alteration=alteration,
            since_built=since.said,
            jobs=options.metric_jobs,
            count=clock.count("verify"),
        )
        checks = verify(Subject.read_built(built_target, runtime, options.device_map))
        if found is not None:
            keep_reference(project, name, cache, reference, found[1])
    changed = None if change is None else f"the file or its data has changed since the build: {change}"
    return TargetResult(
        name=name,
        status=outcome(checks),
        artifact=display_path(project, path),
        size=size,
        sha256=digest,
        quantize=reference.scheme,
        checks=checks,
        required=required,
        seconds=clock.seconds,
        notes=(*filter(None, (since.said, changed)), *models.notes),
    )


def _models(
    project: Project,
    name: str,
    found: tuple[Record, Reads] | None,
    models: Models,
    cache: Cache,
    clock: StageClock,
) -> tuple[ExportedModel, ExportedModel]:
    """Return the float model and the model that was lowered.

    ``found`` is the cached record of the object program, with the files and packages that the build read. It is None
    if the cache lacks the object program.
    """
    if found is None:
        return remembering(models.prepare(name, clock), KnownOutputs())
    record, reads = found
    known = KnownOutputs(cache.reference(project, name, object_facts(project, name), reads))
    return remembering(models.prepare_unexported(name, record.outputs, clock, known), known)


def _built(path: Path, target: str) -> TargetResult | None:
    """Return the result of a target from the report next to the program at ``path``.

    Return None if the report does not contain this target and file.
    """
    report = find_report(report_beside(path))
    for built in () if report is None else report.targets:
        if built.name == target and PurePath(built.artifact).name.removesuffix(REJECTED_SUFFIX) == path.name:
            return built
    return None


def _sidecar(project: Project, target: str) -> Sidecar:
    """Return the sidecar of a target's object program; an empty one if there is no object program."""
    try:
        return read_sidecar(sidecar_place(object_place(project, target)))
    except ProgramError:
        return Sidecar({})


def _data_change(built: TargetResult, data: Sequence[Path]) -> str | None:
    """Describe how the data files differ from the files that the build wrote; return None if they do not differ.

    The content of missing files is not compared.
    """
    stated = {item.name: item for item in built.data}
    if [path.name for path in data] != sorted(stated):
        wanted = _in_files(path.name for path in data)
        return f"according to the config, its weights are {wanted}; according to {REPORT}, they are {_in_files(stated)}"
    for path in data:
        if path.is_file():
            change = change_since_build(stated[path.name], path.stat().st_size, file_sha256(path))
            if change is not None:
                return f"its data file {path.name} differs: {change}"
    return None


def _in_files(names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names))
    return f"in {listed}" if listed else "inside the program"
