"""Errors of workers, tasks and their memory."""

from __future__ import annotations

from etdev.errors import UsageError
from etdev.runtime.errors import RunError


class OrchestratorError(RunError):
    """Error for a task that could not run."""


class PlacementError(UsageError):
    """Error for a task that cannot run where the caller wants it.

    Examples: the worker does not exist, two arguments are on different workers, a group has the same worker twice.
    """


class HandleError(UsageError):
    """Error for a handle that cannot be used in this way.

    Examples: the memory was already freed, the caller frees only a part of a buffer, a task writes to read-only memory.
    """


class ClosedError(UsageError):
    """Error for a call of an orchestrator that is closed."""


class WorkerLost(OrchestratorError):  # noqa: N818 - an event; other systems use this name
    """Error for a worker that has ended. Its tasks and all of its memory are lost."""

    def __init__(self, worker: int, reason: str, *, what: str | None = None) -> None:
        self.worker, self.reason = worker, reason
        super().__init__(
            f"worker {worker} is lost: {reason}",
            where=what,
            hint=f"restart the worker, with empty memory: `restart({worker})`",
        )


class PoisonedError(OrchestratorError):
    """Error for a task that did not run, because its input comes from a task that failed."""

    def __init__(self, task: str, cause: BaseException) -> None:
        self.cause = cause
        """Error of the task that failed."""
        super().__init__(f"{task} did not run, because its input comes from a task that failed: {cause}")


class CancelledTaskError(OrchestratorError):
    """Error for a task that was cancelled before it started."""


class BackPressureError(OrchestratorError, TimeoutError):
    """Error for a task that could not be submitted in time, because too many other tasks are unfinished."""


class RemoteError(OrchestratorError):
    """Error that replaces an error of a task, if the original error cannot be sent to this process."""
