"""What can go wrong with workers, tasks and the memory that they have."""

from __future__ import annotations

from etdev.errors import UsageError
from etdev.runtime.errors import RunError


class OrchestratorError(RunError):
    """A task could not be run as it was asked for."""


class PlacementError(UsageError):
    """A task is wanted where it cannot be: a worker that there is not, arguments that lie on two, a group with one
    member twice."""


class HandleError(UsageError):
    """A handle does not stand for what it is used for: freed memory, a part where the whole is meant, a write to what
    is read-only."""


class ClosedError(UsageError):
    """The orchestrator was closed, and something is asked of it."""


class WorkerLost(OrchestratorError):  # noqa: N818 - an event, and the name that other systems give it
    """A worker is gone, and with it what it was doing and all of its memory."""

    def __init__(self, worker: int, reason: str, *, what: str | None = None) -> None:
        self.worker, self.reason = worker, reason
        super().__init__(
            f"worker {worker} is gone: {reason}",
            where=what,
            hint=f"`restart({worker})` starts it again, without its memory",
        )


class PoisonedError(OrchestratorError):
    """A task needs what another one was to write, and that one failed or was cancelled."""

    def __init__(self, task: str, cause: BaseException) -> None:
        self.cause = cause
        """The error that came first."""
        super().__init__(f"{task} was not run, since what it needs was never written: {cause}")


class CancelledTaskError(OrchestratorError):
    """A task was cancelled before it began."""


class BackPressureError(OrchestratorError, TimeoutError):
    """There was no room for another task in time."""


class RemoteError(OrchestratorError):
    """A task failed on its worker with an error that could not be brought here as it was."""
