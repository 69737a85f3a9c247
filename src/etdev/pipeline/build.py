"""A whole build: the stages in order, for every target, and what becomes of the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from etdev.files import atomic_write_text
from etdev.pipeline.emit import emit_program
from etdev.pipeline.lower import lower_model, require_backends
from etdev.pipeline.models import Models
from etdev.pipeline.noise import quiet_libraries
from etdev.pipeline.options import BuildOptions, choose_targets, required_rungs, runtime_for
from etdev.pipeline.progress import StageClock
from etdev.pipeline.project import Project
from etdev.pipeline.result import RUNGS, BuildResult, TargetResult, outcome
from etdev.pipeline.summary import describe_methods, display_path, start_result
from etdev.pipeline.usercode import UserCode
from etdev.pipeline.verify.kernels import check_runtime_settings
from etdev.pipeline.verify.ladder import Candidate, check_functions, not_run, verify_program
from etdev.pipeline.write import StagedFile, write_program
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
    return start_result(project, results)


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
    models.load(clock)
    if runtime is not None:
        check_functions(project, user, name)
    float_model, reference = models.prepare(name, clock)
    with clock.stage("lower"):
        lowered = lower_model(project, reference, name)
    with clock.stage("emit"):
        emitted = emit_program(project, lowered, reference, name)
    with StagedFile(project.artifact(name)) as staged:
        with clock.stage("write"):
            written = write_program(emitted, staged)
        result = TargetResult(
            name=name,
            status="built",
            artifact="",
            size=written.size,
            sha256=written.sha256,
            quantize=reference.scheme,
            methods=describe_methods(lowered, emitted, reference),
            required=required_rungs(project, name, options),
            notes=models.notes,
        )
        if runtime is None:
            rungs = tuple(not_run(rung, "verification was turned off") for rung in RUNGS)
        else:
            candidate = Candidate(written.path, written.size, float_model, reference)
            with clock.stage("verify"):
                rungs = verify_program(project, user, name, candidate, runtime)
        result = result.model_copy(update={"rungs": rungs, "status": outcome(rungs)})
        place = staged.reject() if result.status == "rejected" else staged.accept()
    result = result.model_copy(update={"artifact": display_path(project, place), "seconds": clock.seconds})
    report = start_result(project, (result,))
    atomic_write_text(place.parent / "report.json", report.model_dump_json(indent=2) + "\n")
    return result
