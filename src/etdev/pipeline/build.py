"""A whole build: which targets there are already, and which have to be built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.errors import WriteError
from etdev.pipeline.baseline_source import check_baseline
from etdev.pipeline.cache import Cache, locked_facts, open_store
from etdev.pipeline.finished import Finished, find_finished
from etdev.pipeline.lock import Lock, check_inputs, check_outputs, find_lock, is_of_the_files_alone, write_lock
from etdev.pipeline.options import BuildOptions, choose_targets
from etdev.pipeline.project import Project
from etdev.pipeline.report_file import start_result
from etdev.pipeline.result import BuildResult


def build_project(project: Project, options: BuildOptions) -> BuildResult:
    """Build the chosen targets, one after the other; those that an earlier build has finished are taken from the cache.

    What is good is entered in ``etdev.lock``; with :attr:`BuildOptions.locked`, nothing may be other than it says.
    Raises a :class:`~etdev.errors.EtdevError` if a stage fails; artifacts of targets that were finished before stay. A
    rejected artifact or a missed gate is a result, not an error: the other targets are built all the same.
    """
    names = choose_targets(project, options.targets)
    check_baseline(project, names)
    lock = find_lock(project)
    with Cache(open_store()) as cache:
        if options.locked:
            check_inputs(project, lock, {name: locked_facts(project, name) for name in names}, cache.digests)
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
    return result.model_copy(update={"notes": (*result.notes, *notes, *_lock(project, options, lock, found))})


def _lock(project: Project, options: BuildOptions, lock: Lock | None, found: Mapping[str, Finished]) -> Iterator[str]:
    """Compare with the lock, or write it; gives why that could not be done."""
    if options.locked and lock is not None:
        check_outputs(project, lock, {name: finished.result.sha256 for name, finished in found.items()})
    elif is_of_the_files_alone(project):
        good = {name: finished.locked for name, finished in found.items() if finished.good}
        try:
            write_lock(project, find_lock(project), good)  # As it is by now: another build may have written it.
        except (WriteError, UnicodeError) as error:
            yield f"the lock was not written: {error}"
