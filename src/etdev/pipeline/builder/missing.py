"""Builds the targets that the cache lacks, one after another or in parallel on workers."""

from __future__ import annotations

from collections.abc import Sequence

from etdev.errors import EtdevError
from etdev.pipeline.builder.outcome import Outcome
from etdev.pipeline.builder.targets import build_session, build_target, check_target
from etdev.pipeline.builder.tasks import plan_tasks, workers_wanted
from etdev.pipeline.cache import Cache
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions


def build_missing(
    project: Project, names: Sequence[str], options: BuildOptions, cache: Cache, outcome: Outcome
) -> None:
    """Build the targets; stop at the first target that fails, unless the options have ``keep_going``."""
    ready = _checked(project, names, outcome)
    run = project.config.run
    if not ready or (outcome.errors and not options.keep_going):
        return
    tasks = plan_tasks(project, ready, options, cache)
    if run.executor == "ray" or min(workers_wanted(project, options), len(tasks)) > 1:
        from etdev.pipeline.builder.workers import build_on_workers

        build_on_workers(project, tasks, options, cache, outcome)
    else:
        _build_in_turn(project, ready, options, cache, outcome)


def _checked(project: Project, names: Sequence[str], outcome: Outcome) -> list[str]:
    """Return the targets for which :func:`check_target` finds no obstacle.

    Record an error for each target with an obstacle.
    """
    ready = []
    for name in names:
        try:
            check_target(project, name)
        except EtdevError as error:
            outcome.errors[name] = error
        else:
            ready.append(name)
    return ready


def _build_in_turn(
    project: Project, names: Sequence[str], options: BuildOptions, cache: Cache, outcome: Outcome
) -> None:
    with build_session(project, options, cache) as session:
        for name in names:
            try:
                outcome.finished[name] = build_target(session, name)
            except EtdevError as error:
                outcome.errors[name] = error
                if not options.keep_going:
                    return
