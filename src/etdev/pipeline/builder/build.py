"""The build of a config: restores finished targets from the cache, and builds the other targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from etdev.errors import EtdevError, WriteError
from etdev.pipeline.builder.finished import Finished, find_finished
from etdev.pipeline.builder.outcome import Outcome
from etdev.pipeline.builder.report_file import display_path, remove_results, start_result, write_results
from etdev.pipeline.builder.runners import require_runner_tools, write_runners
from etdev.pipeline.cache import Cache, locked_facts, open_store
from etdev.pipeline.cache.lock import (
    Lock,
    check_inputs,
    check_outputs,
    find_lock,
    is_entered,
    is_of_the_files_alone,
    write_lock,
)
from etdev.pipeline.project import Project
from etdev.pipeline.project.baseline_source import check_baseline
from etdev.pipeline.project.exclusive import exclusive_lock_file, exclusive_outputs, is_lock_file_held
from etdev.pipeline.project.options import BuildOptions, choose_targets
from etdev.pipeline.results.result import BuildResult


def build_project(project: Project, options: BuildOptions) -> BuildResult:
    """Build the chosen targets; restore from the cache the targets that an earlier build finished.

    If another build of one of these targets is running, wait until that build ends.

    A target is entered in the lock if it is :attr:`~etdev.pipeline.builder.finished.Finished.good`. With
    :attr:`BuildOptions.locked`, all inputs and outputs must match the lock. ``results.json`` contains the outcome of
    each target, even if an error ends the build.

    Raises an :class:`~etdev.errors.EtdevError` if a stage fails, unless :attr:`BuildOptions.keep_going` is set.
    :class:`~etdev.errors.TargetsError` combines different errors of several targets. After an error, the artifacts of
    finished targets are not removed. A rejected artifact or a missed gate is a result, not an error: the other targets
    are still built.
    """
    names = choose_targets(project, options.targets)
    with exclusive_outputs(project, names, options.progress):
        return _build_alone(project, names, options)


def _build_alone(project: Project, names: tuple[str, ...], options: BuildOptions) -> BuildResult:
    """Build the targets in ``names``. The caller must hold the locks on the output folders of the targets."""
    remove_results(project)
    check_baseline(project, names)
    require_runner_tools(project, names)
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
        outcome = Outcome(found)
        if missing:
            from etdev.pipeline.builder.missing import build_missing  # Takes longer to import than a finished build.

            build_missing(project, missing, options, cache, outcome)
        write_runners(project, names, outcome, options)
        notes = () if cache.obstacle is None else (cache.obstacle,)
    result = _result(project, names, options, outcome, notes)
    try:
        told = f"{display_path(project, project.results)} has the outcome of each target"
        error = None if options.keep_going else outcome.error(names, result.exit_code, told)
        if error is not None:
            raise error
        result = result.model_copy(update={"notes": (*result.notes, *_lock(project, options, lock, outcome.finished))})
    except EtdevError:
        with suppress(WriteError):  # An error in writing results would hide the build's own error.
            write_results(project, result)
        raise
    write_results(project, result)
    return result


def _result(
    project: Project, names: Sequence[str], options: BuildOptions, outcome: Outcome, notes: Sequence[str]
) -> BuildResult:
    """Return the result of the build for all targets, in the config's order."""
    finished = outcome.finished
    result = start_result(
        project, tuple(finished[name].result for name in names if name in finished), options.device_map
    )
    begun = finished.keys() | outcome.errors.keys()
    return result.model_copy(
        update={
            "failed": outcome.failed(names),
            "not_built": tuple(name for name in names if name not in begun),
            "notes": (*result.notes, *notes),
        }
    )


def _lock(project: Project, options: BuildOptions, lock: Lock | None, found: Mapping[str, Finished]) -> Iterator[str]:
    """With :attr:`BuildOptions.locked`, compare the finished targets with the lock; otherwise write them to the lock.

    Yields a note if the lock cannot be written.
    """
    if options.locked and lock is not None:
        check_outputs(project, lock, {name: finished.locked for name, finished in found.items()})
    elif is_of_the_files_alone(project):
        good = {name: finished.locked for name, finished in found.items() if finished.good}
        entered = is_entered(project, find_lock(project), good)
        if entered and not is_lock_file_held(project):
            return  # Writing is not needed, and would fail in a read-only folder.
        try:
            with exclusive_lock_file(project):
                write_lock(project, find_lock(project), good)  # Read the lock again, since other builds write it too.
        except (WriteError, UnicodeError) as error:
            if not entered:
                yield f"the lock was not written: {error}"
