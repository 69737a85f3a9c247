"""Orchestrator, which runs tasks on workers. Each worker has its own memory.

Tasks run where their data is, so weights and caches are not copied. Importing this package does not import its modules.
So the process of a worker loads only the modules that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etdev.runtime.orchestrator.arrays import WorkerArray
    from etdev.runtime.orchestrator.errors import (
        BackPressureError,
        ClosedError,
        HandleError,
        OrchestratorError,
        PlacementError,
        PoisonedError,
        RemoteError,
        WorkerLost,
    )
    from etdev.runtime.orchestrator.futures import TaskFuture
    from etdev.runtime.orchestrator.handles import Access, Handle, InOut, ObjectHandle, Out
    from etdev.runtime.orchestrator.orchestrator import Orchestrator
    from etdev.runtime.orchestrator.scope import Scope
    from etdev.runtime.orchestrator.spec import WorkerSpec

__all__ = [
    "Access",
    "BackPressureError",
    "ClosedError",
    "Handle",
    "HandleError",
    "InOut",
    "ObjectHandle",
    "Orchestrator",
    "OrchestratorError",
    "Out",
    "PlacementError",
    "PoisonedError",
    "RemoteError",
    "Scope",
    "TaskFuture",
    "WorkerArray",
    "WorkerLost",
    "WorkerSpec",
]

_HOME = {
    "Access": "handles",
    "Handle": "handles",
    "InOut": "handles",
    "ObjectHandle": "handles",
    "Orchestrator": "orchestrator",
    "Out": "handles",
    "Scope": "scope",
    "TaskFuture": "futures",
    "WorkerArray": "arrays",
    "WorkerSpec": "spec",
}
"""Maps a public name to the module that defines it; names that are not listed are in ``errors``."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
