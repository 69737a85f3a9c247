"""Futures of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from etdev.runtime.orchestrator.messages import Cost


class TaskFuture(Future[Any]):
    """Future of a task. :meth:`result` returns the task's result; for a group, the list of its members' results."""

    def __init__(self, label: str, cancel: Callable[[], bool], drive: Callable[[TaskFuture], None]) -> None:
        super().__init__()
        self.label = label
        self.outputs: tuple[Mapping[int, Any], ...] = ()
        """Arrays that were copied back, once the task is done: per member, position of the argument → caller's array.

        A single task has one member.
        """
        self.cost: tuple[Cost, ...] = ()
        """Cost of each member, once the task is done."""
        self._cancel, self._drive = cancel, drive

    def cancel(self) -> bool:
        """Cancel the task. Return False if it has begun already."""
        return self._cancel()

    def cancel_now(self) -> None:
        """Notify waiting threads that the task was cancelled."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> Any:
        """Return the task's result, or raise its error."""
        self._drive(self)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the task's error, or None."""
        self._drive(self)
        return super().exception(timeout)
