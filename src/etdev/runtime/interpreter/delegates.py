"""Registry of the executors of delegates."""

from __future__ import annotations

from collections.abc import Mapping

from etdev.errors import UsageError
from etdev.runtime.interpreter import reference
from etdev.runtime.interpreter.settings import ExecutorFactory

_FACTORIES: dict[str, ExecutorFactory] = {}


def register_executor(name: str, factory: ExecutorFactory) -> None:
    """Register the executor of a backend's delegates. Raise :class:`UsageError` if it has one already."""
    if name in _FACTORIES:
        raise UsageError(f"an executor for {name} is registered already")
    _FACTORIES[name] = factory


def executors() -> Mapping[str, ExecutorFactory]:
    """Return the executors by backend: built-in and registered ones."""
    return {reference.BACKEND: reference.load, **_FACTORIES}
