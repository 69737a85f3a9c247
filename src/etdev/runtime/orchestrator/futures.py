"""Futures of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from etdev.runtime.orchestrator.messages import Cost


class TaskFuture(Future[Any]):
    """Future of a task or group; the result of a group is the list of its members' results."""

    def __init__(self, label: str, cancel: Callable[[], bool], drive: Callable[[TaskFuture], None]) -> None:
        super().__init__()
        self.label = label
        self.outputs: tuple[Mapping[int, Any], ...] = ()
        """For each member, maps the position of an output argument to the caller's array with the output.

        Empty until the task is done. A task without a group has one member.
        """
        self.cost: tuple[Cost, ...] = ()
        """Cost of each member; empty until the task is done."""
        self._cancel, self._drive = cancel, drive

    def cancel(self) -> bool:
        """Cancel the task; return False if it has already started."""
        return self._cancel()

    def cancel_now(self) -> None:
        """Mark the future as cancelled, and wake the threads that wait for it."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the task and return its result, or raise its error."""
        self._drive(self)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the task and return its error; None if the task succeeded."""
        self._drive(self)
        return super().exception(timeout)
