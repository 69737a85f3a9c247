"""Interface that carries commands to workers and answers back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etdev.runtime.orchestrator.messages import Job
from etdev.runtime.orchestrator.spec import WorkerSpec

Done = Callable[[Any, BaseException | None], None]
"""Receives an answer or an error.

It is called once for each command, from any thread, perhaps before the command's own call returns. It is never called
after the worker was reported as lost.
"""
Unknown = Callable[[int, str], None]
"""Receives a lost worker and the reason."""


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a worker, known without a request to it."""

    alive: bool
    pid: int
    """Id of its process."""
    live_bytes: int
    """Bytes allocated in its memory; 0 if it is lost."""


class Transport(ABC):
    """Workers, numbered from 0. Commands do not wait for their answers."""

    def __init__(self, specs: Sequence[WorkerSpec]) -> None:
        self.specs = tuple(specs)

    @abstractmethod
    def start(self, lost: Unknown) -> None:
        """Start all workers. Raises if one does not start; none is left then."""

    @abstractmethod
    def alloc(self, worker: int, buffer: int, nbytes: int, done: Done) -> None:
        """Allocate a buffer under a number that was never used."""

    @abstractmethod
    def free(self, worker: int, buffer: int, done: Done) -> None:
        """Free a buffer or an object."""

    @abstractmethod
    def put(self, worker: int, buffer: int, offset: int, data: Any, done: Done) -> None:
        """Copy host bytes to a buffer."""

    @abstractmethod
    def get(self, worker: int, buffer: int, offset: int, nbytes: int, done: Done) -> None:
        """Copy bytes of a buffer to the host; the answer is a buffer of the host."""

    @abstractmethod
    def run(self, worker: int, job: Job, done: Done) -> None:
        """Run a job; the answer is an :class:`~etdev.runtime.orchestrator.worker.Outcome`."""

    @abstractmethod
    def health(self, worker: int) -> Health:
        """Return the health of a worker."""

    @abstractmethod
    def restart(self, worker: int) -> None:
        """Start a lost worker with empty memory. Raises if it does not start."""

    @abstractmethod
    def kill(self, worker: int) -> None:
        """Kill a worker at once, even while it runs a task. The worker is lost then."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and free their memory. A second call has no effect."""

    def step(self) -> bool | None:
        """Do one step of the work in the calling thread. Return False if there is none.

        A transport with threads of its own returns None.
        """
        return None
