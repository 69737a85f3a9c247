"""Interface of transports, which send commands to workers and return the answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etdev.runtime.orchestrator.messages import Job
from etdev.runtime.orchestrator.spec import WorkerSpec

Done = Callable[[Any, BaseException | None], None]
"""Callback for the answer to a command, or for its error.

It is called once for each command, from any thread, maybe before the command's method returns. It is not called for a
worker that was reported as lost.
"""
Unknown = Callable[[int, str], None]
"""Callback for the loss of a worker. It gets the number of the worker and the reason."""


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a worker. The worker need not answer for it."""

    alive: bool
    pid: int
    """Process id of the worker."""
    live_bytes: int
    """Bytes that the worker has allocated; 0 if it is lost."""


class Transport(ABC):
    """Workers, numbered from 0. The methods do not wait for answers."""

    def __init__(self, specs: Sequence[WorkerSpec]) -> None:
        self.specs = tuple(specs)

    @abstractmethod
    def start(self, lost: Unknown) -> None:
        """Start all workers. If one does not start, end the others and raise an error."""

    @abstractmethod
    def alloc(self, worker: int, buffer: int, nbytes: int, done: Done) -> None:
        """Allocate a buffer. Its number was never used before."""

    @abstractmethod
    def free(self, worker: int, buffer: int, done: Done) -> None:
        """Free a buffer or an object."""

    @abstractmethod
    def put(self, worker: int, buffer: int, offset: int, data: Any, done: Done) -> None:
        """Copy host bytes to a buffer."""

    @abstractmethod
    def get(self, worker: int, buffer: int, offset: int, nbytes: int, done: Done) -> None:
        """Copy bytes of a buffer to the host. The answer is a bytes-like object."""

    @abstractmethod
    def run(self, worker: int, job: Job, done: Done) -> None:
        """Run a job. The answer is an :class:`~etdev.runtime.orchestrator.worker.Outcome`."""

    @abstractmethod
    def health(self, worker: int) -> Health:
        """Return the health of a worker."""

    @abstractmethod
    def restart(self, worker: int) -> None:
        """Start a lost worker again, with empty memory. Raises an error if it does not start."""

    @abstractmethod
    def kill(self, worker: int) -> None:
        """Kill a worker at once, even if it runs a task. It is lost then."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and free their memory. A second call has no effect."""

    def step(self) -> bool | None:
        """Run one queued task in the calling thread. Return False if there is none.

        A transport that has its own threads returns None.
        """
        return None
