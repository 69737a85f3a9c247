"""Runtimes that can call programs, and reasons why a program cannot run in a runtime on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from etdev.backends.base import BUILD_EXTRA, find_packages
from etdev.execution.availability import absent, named, remedy
from etdev.pipeline.project.runtime_contents import Requirements
from etdev.program import Program
from etdev.program.analysis.inplace import DEFAULT
from etdev.program.devices import named_devices
from etdev.runtime.device_map import DeviceMap
from etdev.runtime.stock import StockRuntime

if TYPE_CHECKING:
    from etdev.runtime.interpreter.kernels import InPlaceTable
    from etdev.runtime.interpreter.settings import Bounds
    from etdev.runtime.replay import ReplayRuntime


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why a program cannot be replayed on this machine, with advice."""

    reason: str
    remedy: str | None = None


def replay_obstacle(program: Program, device_map: DeviceMap) -> Obstacle | None:
    """Return the reason why the program cannot be replayed on this machine; None if it can."""
    problem = torch_obstacle()
    if problem is not None:
        return Obstacle(problem)
    from etdev.runtime.replay import missing_executors, missing_kernels

    delegates = missing_executors(program)  # Check this first: devices do not help without executors.
    if delegates:
        return Obstacle(f"{', '.join(delegates)} cannot be replayed: no executor for its blobs is installed")
    devices = named_devices(program)
    reason = absent(devices, device_map)
    if reason is not None:
        return Obstacle(reason, remedy(devices))
    operators = missing_kernels(program)
    return Obstacle(f"the replay has no kernel for {', '.join(operators)}") if operators else None


def torch_obstacle() -> str | None:
    """Return the reason why torch is not available; None if it is available."""
    package = find_packages("torch", remedy=BUILD_EXTRA)
    if not package.available:
        return f"{package.reason}; run `{package.remedy}` to install it"
    try:
        import torch  # noqa: F401
    except ImportError as error:
        return f"the package 'torch' cannot be imported: {error}"
    return None


def open_replay(
    device_map: DeviceMap, inplace: InPlaceTable = DEFAULT, *, poison: bool = True, bounds: Bounds | None = None
) -> ReplayRuntime:
    """Return the replay, which runs programs in etdev's interpreter.

    ``inplace`` is the table of kernels that may write an output over an operand: the table of the program's link. It
    extends etdev's own table.
    """
    from etdev.runtime.replay import ReplayRuntime

    return ReplayRuntime(device_map, inplace={**DEFAULT, **inplace}, poison=poison, bounds=bounds)


def stock_obstacle(program: Program, required: Requirements, runtime: StockRuntime) -> str | None:
    """Return the reason why the runtime of the ExecuTorch wheel cannot run the program; None if it can.

    The wheel may lack an operator or backend that the program names, or may be known to compute a wrong result.
    """
    devices = named_devices(program)
    if devices:
        return f"the stock Python runtime has no devices, and the program names {named(devices)}"
    operators = {name for names in required.operators.values() for name in names} - runtime.operators
    if operators:
        return f"the wheel's runtime has no kernel for {', '.join(sorted(operators))}"
    delegates = {name for names in required.delegates.values() for name in names}
    if delegates - runtime.backends:
        return f"the wheel's runtime has no backend {', '.join(sorted(delegates - runtime.backends))}"
    if delegates - runtime.usable_backends:
        names = ", ".join(sorted(delegates - runtime.usable_backends))
        return f"the wheel's runtime does not find a library for its backend {names}"
    return None


class Runtime(Protocol):
    """A runtime that loads a program and calls its methods.

    There are two: the stock runtime, which has a process of its own, and the replay, which is in this process. Both
    raise :class:`~etdev.runtime.stock.ProgramFailureError` if the program fails.
    """

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        """Load a program with its data files, and return the names of its methods.

        If ``shared`` is True, all methods use the same planned buffers.
        """

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        """Call a method and return its outputs. With ``fresh``, the call starts from initial state."""
