"""Interface of transports, which send commands to workers and return the answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etdev.runtime.orchestrator.messages import Job
from etdev.runtime.orchestrator.spec import WorkerSpec

Done = Callable[[Any, BaseException | None], None]
"""Callback for the answer to a command, or for the command's error.

The callback is called once for each command, from any thread. It may be called even before the method that sent the
command has returned. The callback is not called for a worker that was reported as lost.
"""
Unknown = Callable[[int, str], None]
"""Callback for the loss of a worker; its arguments are the worker's number and the reason."""


@dataclass(frozen=True, slots=True)
class Health:
    """Last known state of a worker, available without a command to the worker."""

    alive: bool
    pid: int
    """Process id of the worker."""
    live_bytes: int
    """Bytes that the worker has allocated; 0 if the worker is lost."""


class Transport(ABC):
    """Workers, numbered from 0, and the commands to them; commands return without waiting for answers."""

    def __init__(self, specs: Sequence[WorkerSpec]) -> None:
        self.specs = tuple(specs)

    @abstractmethod
    def start(self, lost: Unknown) -> None:
        """Start all workers; if a worker does not start, end the other workers and raise an error."""

    @abstractmethod
    def alloc(self, worker: int, buffer: int, nbytes: int, done: Done) -> None:
        """Allocate a buffer with the number ``buffer``, which must not have been used before."""

    @abstractmethod
    def free(self, worker: int, buffer: int, done: Done) -> None:
        """Free a buffer or an object."""

    @abstractmethod
    def put(self, worker: int, buffer: int, offset: int, data: Any, done: Done) -> None:
        """Copy host bytes to a buffer."""

    @abstractmethod
    def get(self, worker: int, buffer: int, offset: int, nbytes: int, done: Done) -> None:
        """Copy bytes of a buffer to the host; the answer is a bytes-like object."""

    @abstractmethod
    def run(self, worker: int, job: Job, done: Done) -> None:
        """Run a job; the answer is an :class:`~etdev.runtime.orchestrator.worker.Outcome`."""

    @abstractmethod
    def health(self, worker: int) -> Health:
        """Return the state of a worker."""

    @abstractmethod
    def restart(self, worker: int) -> None:
        """Start a lost worker again, with empty memory. Raises an error if the worker does not start."""

    @abstractmethod
    def kill(self, worker: int) -> None:
        """Kill a worker immediately, even if it runs a task; the worker is then lost."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and free their memory; a second call has no effect."""

    def step(self) -> bool | None:
        """Run one queued task in the calling thread; return False if no task is queued.

        A transport that has its own threads returns None.
        """
        return None
