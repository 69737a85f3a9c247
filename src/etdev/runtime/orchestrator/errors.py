"""Errors of workers, tasks and their memory."""

from __future__ import annotations

from etdev.errors import UsageError
from etdev.runtime.errors import RunError


class OrchestratorError(RunError):
    """Error of a task that could not be run as requested."""


class PlacementError(UsageError):
    """Error of a task that cannot run where it is requested.

    Examples are a worker that does not exist, arguments on two workers, and a group with one worker twice.
    """


class HandleError(UsageError):
    """Error of a handle that is used for something that it does not refer to.

    Examples are freed memory, a part instead of the whole, and a write to read-only memory.
    """


class ClosedError(UsageError):
    """Error of a request to an orchestrator that is closed."""


class WorkerLost(OrchestratorError):  # noqa: N818 - an event; other systems use this name
    """Loss of a worker, with its running tasks and all of its memory."""

    def __init__(self, worker: int, reason: str, *, what: str | None = None) -> None:
        self.worker, self.reason = worker, reason
        super().__init__(
            f"worker {worker} is gone: {reason}",
            where=what,
            hint=f"`restart({worker})` starts it again, without its memory",
        )


class PoisonedError(OrchestratorError):
    """Error of a task that needs the output of another task, which failed or was cancelled."""

    def __init__(self, task: str, cause: BaseException) -> None:
        self.cause = cause
        """Original error."""
        super().__init__(f"{task} was not run, since what it needs was never written: {cause}")


class CancelledTaskError(OrchestratorError):
    """Error of a task that was cancelled before it began."""


class BackPressureError(OrchestratorError, TimeoutError):
    """Error of a task for which there was no room in time."""


class RemoteError(OrchestratorError):
    """Error of a task on its worker that could not be transferred as it was."""
