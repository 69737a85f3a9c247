"""A whole build: which targets there are already, and which have to be built."""

from __future__ import annotations

from etdev.pipeline.cache import Cache, open_store
from etdev.pipeline.finished import Finished, find_finished
from etdev.pipeline.options import BuildOptions, choose_targets
from etdev.pipeline.project import Project
from etdev.pipeline.report_file import start_result
from etdev.pipeline.result import BuildResult


def build_project(project: Project, options: BuildOptions) -> BuildResult:
    """Build the chosen targets, one after the other; those that an earlier build has finished are taken from the cache.

    Raises a :class:`~etdev.errors.EtdevError` if a stage fails; artifacts of targets that were finished before stay. A
    rejected artifact or a missed gate is a result, not an error: the other targets are built all the same.
    """
    names = choose_targets(project, options.targets)
    with Cache(open_store()) as cache:
        found: dict[str, Finished] = {}
        for name in names if options.cache else ():
            finished = find_finished(project, name, options, cache)
            if finished is not None:
                found[name] = finished
        missing = [name for name in names if name not in found]
        if missing:
            from etdev.pipeline.targets import build_targets  # Which takes longer to import than a build that is done.

            found |= build_targets(project, missing, options, cache)
        notes = () if cache.obstacle is None else (cache.obstacle,)
    result = start_result(project, tuple(found[name].result for name in names), options.device_map)
    return result.model_copy(update={"notes": (*result.notes, *notes)})
