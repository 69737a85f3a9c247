"""What runs the parts of a program that belong to a backend."""

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
    """What a delegate is loaded from."""

    id: str
    """Of its backend."""
    data: Blob
    compile_specs: tuple[m.CompileSpec, ...]
    device: Device
    """Where its arguments are, and where it computes."""
    registry: Registry
    """Allocates what it needs there."""
    settings: Settings
    """How the program around it is run."""


class DelegateExecutor(Protocol):
    """A loaded delegate."""

    @property
    def input_count(self) -> int:
        """How many of a call's arguments are inputs; the others are outputs."""

    def execute(self, arguments: Sequence[RunTensor | int | float | bool | None]) -> None:
        """Compute: fill the outputs from the inputs.

        An output may overlap an input, where state is updated in place: all inputs are read before any output is
        written.
        """

    def finish(self) -> None:
        """Wait for what :meth:`execute` began, and raise what went wrong with it."""

    def reset(self) -> None:
        """Forget all state."""

    def close(self) -> None:
        """Free all memory. A second time does nothing."""


ExecutorFactory = Callable[[DelegateContext], DelegateExecutor]

_FACTORIES: dict[str, ExecutorFactory] = {}


def register_executor(name: str, factory: ExecutorFactory) -> None:
    """Say what runs the delegates of a backend. A second time for the same one is an error."""
    if name in _FACTORIES:
        raise UsageError(f"an executor for {name} is registered already")
    _FACTORIES[name] = factory


def executors() -> Mapping[str, ExecutorFactory]:
    """Backend → what runs its delegates: those that come with etdev, and those that were registered."""
    from etdev.runtime.interpreter import reference

    return {reference.BACKEND: reference.load, **_FACTORIES}


def load_executor(context: DelegateContext, factories: Mapping[str, ExecutorFactory]) -> DelegateExecutor:
    """Load a delegate. Raises :class:`~etdev.errors.MissingRequirementError` if nothing here runs its backend."""
    factory = factories.get(context.id)
    if factory is None:
        raise MissingRequirementError(
            f"nothing here runs delegates of {context.id!r} (there are executors for {', '.join(sorted(factories))})",
            hint="run the program in ExecuTorch's own runtime",
        )
    return factory(context)
