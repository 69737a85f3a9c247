"""Building targets on workers: processes of this machine, or of the machines of a Ray cluster."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev import backends
from etdev.backends.devices import placed_specs
from etdev.devices import TARGET_DEVICE
from etdev.errors import EtdevError, MissingRequirementError, StageError
from etdev.files import file_sha256, remove_abandoned
from etdev.pipeline.cache import Cache, open_store
from etdev.pipeline.finished import Finished
from etdev.pipeline.options import BuildOptions
from etdev.pipeline.outcome import Outcome
from etdev.pipeline.progress import Silent
from etdev.pipeline.project import Project
from etdev.pipeline.relay import Address, Relay, Sender
from etdev.pipeline.targets import Builder
from etdev.pipeline.versions import versions
from etdev.runtime.orchestrator import ObjectHandle, Orchestrator, PoisonedError, WorkerLost

if TYPE_CHECKING:
    from etdev.pipeline.cache.store import Store

_LOOK_SECONDS = 0.1
"""How often progress is passed on."""


@dataclass(frozen=True)
class Job:
    """What a worker has to know to build targets of a project."""

    project: Project
    options: BuildOptions
    store: Store | None
    """The cache; None for the one of the machine that the worker is on."""
    progress: Address
    versions: Mapping[str, str]
    """Here, and so there; empty for processes of this machine."""
    files: Mapping[Path, str]
    """Digests of the config's files, for the project's folder has to be the same there."""


class RemoteBuilder:
    """A :class:`Builder` on a worker."""

    def __init__(self, job: Job) -> None:
        _check_place(job)
        with ExitStack() as stack:
            sender = Sender(job.progress)
            stack.callback(sender.close)
            self._cache = stack.enter_context(Cache(job.store or open_store()))
            options = replace(job.options, progress=sender)
            self._builder = stack.enter_context(Builder(job.project, options, self._cache))
            self._open = stack.pop_all()

    def build(self, name: str) -> tuple[Finished, str | None]:
        """The target, and why the cache does not keep it."""
        return self._builder.build(name), self._cache.obstacle

    def close(self) -> None:
        """Close it, as the orchestrator does with objects."""
        self._open.close()


def build_on_workers(
    project: Project, names: Sequence[str], options: BuildOptions, cache: Cache, outcome: Outcome
) -> None:
    """Build targets, as many at a time as the options say. After an error no other is begun, unless the build is to
    keep going; those that are being built then end as they do.

    A target that has a time measured, or that uses devices, is built while no other is.
    """
    run = project.config.run
    count = min(options.jobs or run.jobs, len(names))
    is_remote = run.executor == "ray" and run.ray_address is not None
    transport = "ray" if run.executor == "ray" else "process"
    with Orchestrator(count, transport, ray_address=run.ray_address) as orchestrator:
        try:
            with Relay(options.progress, _own_address() if is_remote else None) as relay:
                job = Job(
                    project,
                    replace(options, device_map=dict(options.device_map), progress=Silent()),
                    None if is_remote else cache.store,
                    relay.address,
                    versions() if run.executor == "ray" else {},
                    {path: file_sha256(path) for path in project.loaded.files} if run.executor == "ray" else {},
                )
                _Crew(orchestrator, relay, job, outcome, cache).build(names)
        except BaseException:
            orchestrator.close(kill=True)
            for name in names:
                remove_abandoned(project.artifact(name).parent)
            raise


class _Crew:
    """Gives targets to workers that are idle."""

    def __init__(self, orchestrator: Orchestrator, relay: Relay, job: Job, outcome: Outcome, cache: Cache) -> None:
        self._orchestrator, self._relay, self._job = orchestrator, relay, job
        self._outcome, self._cache = outcome, cache
        self._idle = list(range(len(orchestrator.specs)))
        self._lost: set[int] = set()
        self._builders: dict[int, ObjectHandle] = {}
        self._running: dict[Future[Any], tuple[str, int]] = {}

    def build(self, names: Sequence[str]) -> None:
        """Build all of them."""
        alone = {name for name in names if needs_the_machine(self._job.project, name)}
        waiting = deque(sorted(names, key=alone.__contains__))
        while waiting or self._running:
            while waiting and self._idle and not (waiting[0] in alone and self._running):
                self._start(waiting.popleft())
                if len(self._running) == 1 and next(iter(self._running.values()))[0] in alone:
                    break
            done, _ = wait(self._running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            self._relay.pass_on()
            for future in done:
                self._take(future)
            if self._outcome.errors and not self._job.options.keep_going:
                waiting.clear()

    def _start(self, name: str) -> None:
        worker = self._idle.pop(0)
        if worker in self._lost:
            self._orchestrator.restart(worker)
            self._lost.remove(worker)
        if worker not in self._builders:
            self._builders[worker] = self._orchestrator.create(RemoteBuilder, self._job, worker=worker)
        future = self._orchestrator.submit(RemoteBuilder.build, self._builders[worker].resident(), name)
        self._running[future] = name, worker

    def _take(self, future: Future[Any]) -> None:
        name, worker = self._running.pop(future)
        self._relay.pass_on(last=name)
        error = future.exception()
        error = error.cause if isinstance(error, PoisonedError) else error
        if error is None:
            self._outcome.finished[name], obstacle = future.result()
            self._cache.obstacle = self._cache.obstacle or obstacle
        elif isinstance(error, WorkerLost):
            self._outcome.errors[name] = _lost(name, error)
            self._builders.pop(worker, None)
            self._lost.add(worker)
        elif isinstance(error, EtdevError):
            self._outcome.errors[name] = error
        else:
            raise error
        self._idle.append(worker)


def needs_the_machine(project: Project, name: str) -> bool:
    """Would what else the machine does change what is found about a target: a time, or the memory of a device?"""
    target = project.config.targets[name]
    return target.budget.latency is not None or any(
        TARGET_DEVICE in placed_specs(backends.get(step.backend), step.device, step.compile_specs)
        for step in target.partitioners
    )


def _lost(name: str, error: WorkerLost) -> StageError:
    return StageError(
        f"the process that built {name!r} is gone: {error.reason}",
        hint="without `-j` it is built in this process; if memory ran out, build fewer targets at a time",
    )


def _own_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _check_place(job: Job) -> None:
    """Refuse to build where something else would come of it: on a machine with another project, or other packages."""
    host = socket.gethostname()
    for path, digest in job.files.items():
        if not path.is_file() or file_sha256(path) != digest:
            state = "is another file" if path.is_file() else "is missing"
            raise MissingRequirementError(
                f"the worker on {host} cannot build this project: {path} {state} there",
                where=job.project.where("run", "executor"),
                hint="the machines of the cluster need the project's folder at the same path: share it",
            )
    found = versions() if job.versions else {}
    other = [name for name in (job.versions.keys() | found.keys()) if job.versions.get(name) != found.get(name)]
    if other:
        name = min(other)
        raise MissingRequirementError(
            f"the worker on {host} has {name} {found.get(name, 'not at all')}, and here is "
            f"{job.versions.get(name, 'none')}",
            where=job.project.where("run", "executor"),
            hint="install the same versions on all machines of the cluster",
        )
