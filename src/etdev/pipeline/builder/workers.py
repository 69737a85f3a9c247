"""Builds of targets on workers, which are processes on this machine or on machines of a Ray cluster."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from etdev.errors import EtdevError, MissingRequirementError, StageError
from etdev.files import file_sha256, remove_abandoned, temporary_folder
from etdev.pipeline.builder.compile import CompiledMethod
from etdev.pipeline.builder.finished import Finished
from etdev.pipeline.builder.outcome import Outcome
from etdev.pipeline.builder.progress_forwarding import ProgressReader, ProgressWriter
from etdev.pipeline.builder.targets import build_session, build_target, compile_part
from etdev.pipeline.builder.tasks import Task, needs_the_machine, workers_wanted
from etdev.pipeline.cache import Cache, open_store
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.project.places import object_place
from etdev.pipeline.project.progress import Progress, Silent
from etdev.pipeline.project.requirements import build_packages
from etdev.pipeline.project.versions import versions
from etdev.runtime.orchestrator import ObjectHandle, Orchestrator, PoisonedError, WorkerLost

if TYPE_CHECKING:
    from etdev.pipeline.cache.store import Store

_Made = TypeVar("_Made")
_LOOK_SECONDS = 0.1
"""Interval in seconds at which the progress of workers is reported."""


@dataclass(frozen=True)
class Job:
    """The data that a worker needs to build targets of a project."""

    project: Project
    options: BuildOptions
    store: Store | None
    """The cache to use; None for the cache of the worker's own machine."""
    events: Path
    """Folder in which the worker writes progress events."""
    versions: Mapping[str, str | None]
    """Versions of etdev, Python and the targets' packages, by name; the worker must have the same versions.

    A version is None if the package is not installed here. For workers on this machine, the mapping is empty.
    """
    files: Mapping[Path, str]
    """Maps each file of the config to its digest.

    The worker must have the project's folder at the same path, with the same files. Empty for workers on this machine.
    """


class RemoteBuilder:
    """Builder for use on a worker: it compiles methods and builds targets for the main process."""

    def __init__(self, job: Job) -> None:
        _check_place(job)
        with ExitStack() as stack:
            self._cache = stack.enter_context(Cache(job.store or open_store()))
            options = replace(job.options, progress=ProgressWriter(job.events))
            self._session = stack.enter_context(build_session(job.project, options, self._cache))
            self._open = stack.pop_all()

    def compile(self, name: str, method: str, folder: Path) -> tuple[CompiledMethod | EtdevError, str | None]:
        """Compile a method of a target.

        The first item of the result is the compiled method, or the error if a stage failed. The error is not raised,
        because an exception would end all later tasks of this builder. The second item is the reason why the cache
        could not store a file; None if no store operation failed.
        """
        return _result_or_error(lambda: compile_part(self._session, name, method, folder)), self._cache.obstacle

    def build(self, name: str, parts: Sequence[CompiledMethod]) -> tuple[Finished | EtdevError, str | None]:
        """Build a target.

        The first item of the result is the finished target, or the error if a stage failed. The second item is the
        reason why the cache could not store a file; None if no store operation failed.
        """
        return _result_or_error(lambda: build_target(self._session, name, parts)), self._cache.obstacle

    def close(self) -> None:
        """Close the build session. The orchestrator calls this method when the orchestrator itself is closed."""
        self._open.close()


def _result_or_error(build: Callable[[], _Made]) -> _Made | EtdevError:
    try:
        return build()
    except EtdevError as error:
        return error


def build_on_workers(
    project: Project, tasks: Sequence[Task], options: BuildOptions, cache: Cache, outcome: Outcome
) -> None:
    """Run the tasks on workers, and build the targets whose methods were compiled separately.

    The options limit the number of tasks that run at the same time. After an error, running tasks continue, but no task
    is started unless the options have ``keep_going``. A target that measures times or uses devices is built alone.
    """
    run = project.config.run
    count = min(workers_wanted(project, options), len(tasks))
    targets = dict.fromkeys(task.target for task in tasks)
    is_remote = run.executor == "ray" and run.ray_address is not None
    transport = "ray" if run.executor == "ray" else "process"
    with Orchestrator(count, transport, ray_address=run.ray_address) as orchestrator, ExitStack() as stack:
        try:
            job = Job(
                project,
                replace(options, device_map=dict(options.device_map), progress=Silent()),
                None if is_remote else cache.store,
                stack.enter_context(temporary_folder(project.results)),
                _versions(project, targets) if run.executor == "ray" else {},
                {path: file_sha256(path) for path in project.loaded.files} if run.executor == "ray" else {},
            )
            folders = {
                name: stack.enter_context(temporary_folder(object_place(project, name)))
                for name in targets
                if Task(name) not in tasks
            }
            _WorkerPool(orchestrator, options.progress, job, outcome, cache, folders).build(tasks)
        except BaseException:
            orchestrator.close(kill=True)
            for name in targets:
                remove_abandoned(project.artifact(name).parent)
            raise


class _WorkerPool:
    """A scheduler that assigns tasks to idle workers."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        progress: Progress,
        job: Job,
        outcome: Outcome,
        cache: Cache,
        folders: Mapping[str, Path],
    ) -> None:
        self._orchestrator, self._progress, self._job = orchestrator, progress, job
        self._outcome, self._cache, self._folders = outcome, cache, folders
        self._events = ProgressReader(progress, job.events)
        self._idle = list(range(len(orchestrator.specs)))
        self._lost: set[int] = set()
        self._builders: dict[int, ObjectHandle] = {}
        self._running: dict[Future[Any], tuple[Task, int]] = {}
        self._parts: dict[str, dict[str, CompiledMethod]] = {name: {} for name in folders}
        """Compiled methods, by target and method name, for targets whose methods are compiled separately."""

    def build(self, tasks: Sequence[Task]) -> None:
        """Run all tasks. When the last method of a target is compiled, build the target."""
        alone = {task for task in tasks if needs_the_machine(self._job.project, task.target)}
        waiting = deque(sorted(tasks, key=alone.__contains__))
        while waiting or self._running:
            while waiting and self._idle and not (waiting[0] in alone and self._running):
                self._start(waiting.popleft())
                if len(self._running) == 1 and next(iter(self._running.values()))[0] in alone:
                    break
            done, _ = wait(self._running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            self._events.report()
            for future in done:
                task, worker = self._running.pop(future)
                self._take(task, worker, future)
                self._idle.insert(len(self._idle) if worker in self._lost else 0, worker)
                if task.method is not None and self._parts[task.target].keys() == self._methods():
                    waiting.appendleft(Task(task.target))  # First in line, because this worker has the models.
            if self._outcome.errors:
                keep = self._job.options.keep_going
                waiting = deque(task for task in waiting if keep and task.target not in self._outcome.errors)

    def _methods(self) -> Set[str]:
        return self._job.project.config.methods.keys()

    def _start(self, task: Task) -> None:
        worker = self._idle.pop(0)
        if worker in self._lost:
            self._orchestrator.restart(worker)
            self._lost.remove(worker)
        if worker not in self._builders:
            self._builders[worker] = self._orchestrator.create(RemoteBuilder, self._job, worker=worker)
        builder = self._builders[worker].resident()
        if task.method is not None:
            future = self._orchestrator.submit(
                RemoteBuilder.compile, builder, task.target, task.method, self._folders[task.target]
            )
        else:
            made = self._parts.get(task.target, {})
            parts = [made[method] for method in self._methods()] if made else []
            future = self._orchestrator.submit(RemoteBuilder.build, builder, task.target, parts)
        self._running[future] = task, worker

    def _take(self, task: Task, worker: int, future: Future[Any]) -> None:
        error = future.exception()
        error = error.cause if isinstance(error, PoisonedError) else error
        if error is None:
            made, obstacle = future.result()
            self._cache.obstacle = self._cache.obstacle or obstacle
            if isinstance(made, EtdevError):
                self._outcome.errors.setdefault(task.target, made)
            elif task.method is None:
                self._outcome.finished[task.target] = made
            else:
                self._parts[task.target][task.method] = made
        elif isinstance(error, WorkerLost):
            self._outcome.errors.setdefault(task.target, _lost(task.target, error))
            self._progress.ended(task.shown)
            self._builders.pop(worker, None)
            self._lost.add(worker)
        elif isinstance(error, EtdevError):
            self._outcome.errors.setdefault(task.target, error)
        else:
            raise error


def _lost(name: str, error: WorkerLost) -> StageError:
    return StageError(
        f"the process that built {name!r} has ended: {error.reason}",
        hint="build without `-j`, so that no other process is needed; if memory ran out, build fewer targets at a time",
    )


def _versions(project: Project, targets: Iterable[str]) -> dict[str, str | None]:
    packages = {name for target in targets for name in build_packages(project.config, target)}
    return {**dict.fromkeys(sorted(packages)), **versions(packages)}


def _check_place(job: Job) -> None:
    """Raise an error if the project or the packages on this worker differ from those of the build."""
    host = socket.gethostname()
    for path, digest in job.files.items():
        if not path.is_file() or file_sha256(path) != digest:
            state = "differs" if path.is_file() else "is missing"
            raise MissingRequirementError(
                f"the worker on {host} cannot build this project: on that machine, {path} {state}",
                where=job.project.where("run", "executor"),
                hint="share the project's folder with all machines of the cluster, at the same path",
            )
    found = versions(job.versions) if job.versions else {}
    other = [name for name, version in job.versions.items() if found.get(name) != version]
    if other:
        name = min(other)
        raise MissingRequirementError(
            f"the worker on {host} has {f'{name} {found[name]}' if name in found else f'no {name}'}, and this machine "
            f"has {job.versions[name] or 'none'}",
            where=job.project.where("run", "executor"),
            hint="install the same versions on all machines of the cluster",
        )
