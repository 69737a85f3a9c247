"""A scope, which owns memory and objects until the end of a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from etdev.errors import UsageError
from etdev.runtime.orchestrator.errors import WorkerLost
from etdev.runtime.orchestrator.handles import Handle, ObjectHandle
from etdev.runtime.owners import MoveOnly


class MemoryOwner(Protocol):
    """Methods of :class:`Orchestrator` that a scope uses."""

    def malloc(self, worker: int, nbytes: int) -> Handle: ...

    def create(self, call: Callable[..., Any], /, *args: Any, worker: int, **kwargs: Any) -> ObjectHandle: ...

    def free(self, handle: Handle | ObjectHandle) -> object: ...


class Scope(MoveOnly):
    """Memory and objects that are freed at the end of a block."""

    def __init__(self, orchestrator: MemoryOwner) -> None:
        self._orchestrator = orchestrator
        self._handles: list[Handle | ObjectHandle] = []

    def malloc(self, worker: int, nbytes: int) -> Handle:
        """Allocate memory like :meth:`Orchestrator.malloc`; the end of the scope frees it."""
        handle = self._orchestrator.malloc(worker, nbytes)
        self._handles.append(handle)
        return handle

    def create(self, call: Callable[..., Any], /, *args: Any, worker: int, **kwargs: Any) -> ObjectHandle:
        """Create an object like :meth:`Orchestrator.create`; the end of the scope closes it."""
        handle = self._orchestrator.create(call, *args, worker=worker, **kwargs)
        self._handles.append(handle)
        return handle

    def close(self) -> None:
        """Free all memory and objects that are not freed yet, newest first."""
        while self._handles:
            handle = self._handles.pop()
            try:
                self._orchestrator.free(handle)
            except (UsageError, WorkerLost):
                continue  # It was already freed, or was lost with its worker.
