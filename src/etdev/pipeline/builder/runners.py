"""C++ projects that run built targets, for targets with the key ``runner``."""

from __future__ import annotations

from collections.abc import Sequence

from etdev.errors import EtdevError, MissingRequirementError
from etdev.pipeline.builder.outcome import Outcome
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.project.places import data_places, runner_place
from etdev.pipeline.project.progress import StageClock


def require_runner_tools(project: Project, names: Sequence[str]) -> None:
    """Raise an error early if a target needs a C++ project but the native host is not available on this machine.

    The native host measures the pools that the project needs. The first call on a machine compiles it.
    """
    wanting = [name for name in names if project.config.targets[name].runner]
    if not wanting:
        return
    from etdev.runtime.native import host_executable

    try:
        host_executable()
    except MissingRequirementError as error:
        where = project.where("targets", wanting[0], "runner")
        raise MissingRequirementError(
            f"the runner cannot be written: {error.message}", where=where, hint=error.hint
        ) from error


def write_runners(project: Project, names: Sequence[str], outcome: Outcome, options: BuildOptions) -> None:
    """Write a C++ project for each finished target with the key ``runner``.

    Remove an earlier project of a target that is rejected or no longer has the key. If a project cannot be written,
    record the error as the target's failure.
    """
    for name in names:
        if name not in outcome.finished:
            continue
        try:
            _write_runner(project, name, outcome, options)
        except EtdevError as error:
            outcome.errors[name] = error
            del outcome.finished[name]


def _write_runner(project: Project, name: str, outcome: Outcome, options: BuildOptions) -> None:
    artifact, settings = project.artifact(name), project.config.targets[name]
    folder = runner_place(artifact)
    if settings.runner and outcome.finished[name].result.status != "rejected":
        from etdev.runner import renew_project

        clock = StageClock(name, options.progress)
        with clock.stage("runner"):
            renew_project(
                folder,
                artifact,
                data_places(project, name),
                embed=settings.runner == "embed",
                alignment=settings.memory.alignment,
            )
        options.progress.ended(name)
    elif folder.is_dir():
        from etdev.runner.folder import remove_project

        remove_project(folder)
