"""Settings of a run, and the contract of executors, which run delegates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from etdev.devices import Device
from etdev.errors import MissingRequirementError
from etdev.program import Blob
from etdev.program import model as m
from etdev.program.analysis.inplace import DEFAULT
from etdev.runtime.allocator import Registry
from etdev.runtime.interpreter.kernels import InPlaceTable

if TYPE_CHECKING:
    from etdev.runtime.interpreter.tensors import RunTensor


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on a program's work and memory."""

    steps: int = 2_000_000
    """Maximum number of instructions in one call."""
    memory: int = 1 << 33
    """Maximum bytes of planned buffers and constants, and of one tensor outside of them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for running a program."""

    poison: bool = True
    """True if bytes that are not in use are overwritten."""
    bounds: Bounds = field(default_factory=Bounds)
    inplace: InPlaceTable = field(default_factory=lambda: DEFAULT)
    """Kernel → inputs that it may overwrite with its outputs."""
    depth: int = 0
    """Number of delegates that enclose the program."""
    executors: Mapping[str, ExecutorFactory] = field(default_factory=dict)
    """Backend → executor of its delegates."""


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


def load_executor(context: DelegateContext, factories: Mapping[str, ExecutorFactory]) -> DelegateExecutor:
    """Load a delegate. Raises :class:`~etdev.errors.MissingRequirementError` if its backend has no executor."""
    factory = factories.get(context.id)
    if factory is None:
        raise MissingRequirementError(
            f"nothing here runs delegates of {context.id!r} (there are executors for {', '.join(sorted(factories))})",
            hint="run the program in ExecuTorch's own runtime",
        )
    return factory(context)
