"""Executors of delegates, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from etdev.devices import Device
from etdev.errors import MissingRequirementError, UsageError
from etdev.program import Blob
from etdev.program import model as m
from etdev.runtime.allocator import Registry

if TYPE_CHECKING:
    from etdev.runtime.interpreter.tensors import RunTensor
    from etdev.runtime.loaded import Settings


@dataclass(frozen=True, slots=True)
class DelegateContext:
    """Data and settings from which an executor loads a delegate."""

    id: str
    """Name of the backend."""
    data: Blob
    compile_specs: tuple[m.CompileSpec, ...]
    device: Device
    """Device of its arguments and of its computation."""
    registry: Registry
    """Allocators for its device memory."""
    settings: Settings
    """Settings of the enclosing program."""


class DelegateExecutor(Protocol):
    """Loaded delegate."""

    @property
    def input_count(self) -> int:
        """Number of inputs among a call's arguments; the rest are outputs."""

    def execute(self, arguments: Sequence[RunTensor | int | float | bool | None]) -> None:
        """Compute the outputs from the inputs.

        An output may overlap an input if state is updated in place. The executor reads all inputs before it writes any
        output.
        """

    def finish(self) -> None:
        """Wait for the work that :meth:`execute` started, and raise its errors."""

    def reset(self) -> None:
        """Reset all state."""

    def close(self) -> None:
        """Free all memory. A second call has no effect."""


ExecutorFactory = Callable[[DelegateContext], DelegateExecutor]

_FACTORIES: dict[str, ExecutorFactory] = {}


def register_executor(name: str, factory: ExecutorFactory) -> None:
    """Register the executor of a backend's delegates. Raise :class:`UsageError` if it has one already."""
    if name in _FACTORIES:
        raise UsageError(f"an executor for {name} is registered already")
    _FACTORIES[name] = factory


def executors() -> Mapping[str, ExecutorFactory]:
    """Return the executors by backend: built-in and registered ones."""
    from etdev.runtime.interpreter import reference

    return {reference.BACKEND: reference.load, **_FACTORIES}


def load_executor(context: DelegateContext, factories: Mapping[str, ExecutorFactory]) -> DelegateExecutor:
    """Load a delegate. Raises :class:`~etdev.errors.MissingRequirementError` if its backend has no executor."""
    factory = factories.get(context.id)
    if factory is None:
        raise MissingRequirementError(
            f"nothing here runs delegates of {context.id!r} (there are executors for {', '.join(sorted(factories))})",
            hint="run the program in ExecuTorch's own runtime",
        )
    return factory(context)
