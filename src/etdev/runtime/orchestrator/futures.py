"""Results that are not there yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from etdev.runtime.orchestrator.messages import Cost


class TaskFuture(Future[Any]):
    """What will come of a task. :meth:`result` is what it returns; of a group, the list of what its members return."""

    def __init__(self, label: str, cancel: Callable[[], bool], drive: Callable[[TaskFuture], None]) -> None:
        super().__init__()
        self.label = label
        self.outputs: tuple[Mapping[int, Any], ...] = ()
        """Of each member of a group, or of the one task, once it is done: position of each argument that comes back →
        the caller's array."""
        self.cost: tuple[Cost, ...] = ()
        """Of each member of a group, or of the one task, once it is done."""
        self._cancel, self._drive = cancel, drive

    def cancel(self) -> bool:
        """Do not run it. False if it began already."""
        return self._cancel()

    def cancel_now(self) -> None:
        """Tell who waits for it that it was cancelled."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> Any:
        """What the task returns; raises what it raises."""
        self._drive(self)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the task raises."""
        self._drive(self)
        return super().exception(timeout)
