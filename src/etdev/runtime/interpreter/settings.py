"""Settings of the interpreter, and the interface of executors, which run delegates."""

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
    """Limits on the work and the memory of a program."""

    steps: int = 2_000_000
    """Maximum number of instructions in one call."""
    memory: int = 1 << 33
    """Maximum total size of all planned buffers, and maximum size of each tensor without planned memory, in bytes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the interpreter."""

    poison: bool = True
    """True to overwrite unused bytes with poison."""
    bounds: Bounds = field(default_factory=Bounds)
    inplace: InPlaceTable = field(default_factory=lambda: DEFAULT)
    """Maps a kernel to pairs: an operand, and the output that may overwrite this operand."""
    depth: int = 0
    """Nesting depth: 0 for a program in a file, 1 for the program of one of its delegates."""
    executors: Mapping[str, ExecutorFactory] = field(default_factory=dict)
    """Maps a backend to the function that loads its delegates."""


@dataclass(frozen=True, slots=True)
class DelegateContext:
    """Data of a delegate, and the settings for loading it."""

    id: str
    """Name of the backend."""
    data: Blob
    compile_specs: tuple[m.CompileSpec, ...]
    device: Device
    """Device that runs the delegate, and that contains the delegate's arguments."""
    registry: Registry
    """Allocators of device memory."""
    settings: Settings
    """Settings of the program that calls the delegate."""


class DelegateExecutor(Protocol):
    """Interface of a loaded delegate."""

    @property
    def input_count(self) -> int:
        """Number of inputs. They are a call's first arguments; all later arguments are outputs."""

    def execute(self, arguments: Sequence[RunTensor | int | float | bool | None]) -> None:
        """Compute the outputs from the inputs.

        An output may overlap an input if the delegate updates state. Therefore, the executor must read all inputs
        before it writes an output.
        """

    def finish(self) -> None:
        """Wait until all work of :meth:`execute` is done, and raise any error of that work."""

    def reset(self) -> None:
        """Reset all state to its initial values."""

    def close(self) -> None:
        """Free all memory. A second call has no effect."""


ExecutorFactory = Callable[[DelegateContext], DelegateExecutor]


def load_executor(context: DelegateContext, factories: Mapping[str, ExecutorFactory]) -> DelegateExecutor:
    """Load a delegate.

    Raises :class:`~etdev.errors.MissingRequirementError` if there is no executor for the delegate's backend.
    """
    factory = factories.get(context.id)
    if factory is None:
        raise MissingRequirementError(
            f"the interpreter cannot run delegates of {context.id!r} "
            f"(it has executors for {', '.join(sorted(factories))})",
            hint="run the program in the stock runtime",
        )
    return factory(context)
