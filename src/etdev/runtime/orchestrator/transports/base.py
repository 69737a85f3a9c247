"""What carries commands to workers and answers back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etdev.runtime.orchestrator.messages import Job
from etdev.runtime.orchestrator.spec import WorkerSpec

Done = Callable[[Any, BaseException | None], None]
"""Takes an answer, or why there is none. Called once for each command, from any thread, perhaps before the command's
own call returns; never after the worker was reported as lost."""
Unknown = Callable[[int, str], None]
"""Takes a worker that is gone, and the reason."""


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a worker without asking it for anything."""

    alive: bool
    pid: int
    """Of its process."""
    live_bytes: int
    """Allocated in its memory; 0 of one that is gone."""


class Transport(ABC):
    """Workers, numbered from 0 on. No command waits for its answer."""

    def __init__(self, specs: Sequence[WorkerSpec]) -> None:
        self.specs = tuple(specs)

    @abstractmethod
    def start(self, lost: Unknown) -> None:
        """Start all workers. Raises if one does not start; none is left then."""

    @abstractmethod
    def alloc(self, worker: int, buffer: int, nbytes: int, done: Done) -> None:
        """Make a buffer with a number that was never used."""

    @abstractmethod
    def free(self, worker: int, buffer: int, done: Done) -> None:
        """Free a buffer or an object."""

    @abstractmethod
    def put(self, worker: int, buffer: int, offset: int, data: Any, done: Done) -> None:
        """Copy bytes of the host into a buffer."""

    @abstractmethod
    def get(self, worker: int, buffer: int, offset: int, nbytes: int, done: Done) -> None:
        """Copy bytes of a buffer to the host; the answer is a buffer of the host."""

    @abstractmethod
    def run(self, worker: int, job: Job, done: Done) -> None:
        """Run a job; the answer is an :class:`~etdev.runtime.orchestrator.worker.Outcome`."""

    @abstractmethod
    def health(self, worker: int) -> Health:
        """How a worker is."""

    @abstractmethod
    def restart(self, worker: int) -> None:
        """Start a worker that is gone, with empty memory. Raises if it does not start."""

    @abstractmethod
    def kill(self, worker: int) -> None:
        """End a worker at once, whatever it is at: it is lost."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and free all that they have. A second time does nothing."""

    def step(self) -> bool | None:
        """Do a piece of the work in the calling thread; False if there is none. None of a transport that has threads of
        its own for it."""
        return None
