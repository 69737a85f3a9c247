"""Runtimes that can call programs, and reasons why a program cannot run in a runtime on this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from etdev.runtime.native import NativeRuntime
from etdev.runtime.stock import StockRuntime

if TYPE_CHECKING:
    from etdev.runtime.interpreter.kernels import InPlaceTable
    from etdev.runtime.interpreter.settings import Bounds, ExecutorFactory
    from etdev.runtime.replay import ReplayRuntime


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Reason why a program cannot run on this machine, with advice."""

    reason: str
    remedy: str | None = None


def replay_obstacle(program: Program, device_map: DeviceMap, executed: Collection[str] = ()) -> Obstacle | None:
    """Return the reason why the replay cannot run the program on this machine; None if it can.

    In the replay, an executor runs a delegate. ``executed`` contains the names of the delegates for which the caller
    has executors. All other delegates need installed executors.
    """
    problem = torch_obstacle()
    if problem is not None:
        return Obstacle(problem)
    from etdev.runtime.replay import missing_executors, missing_kernels

    # Check this first: devices do not help without executors.
    delegates = [name for name in missing_executors(program) if name not in executed]
    if delegates:
        return Obstacle(f"the replay has no executor for delegates of {', '.join(delegates)}")
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
    device_map: DeviceMap,
    inplace: InPlaceTable = DEFAULT,
    *,
    poison: bool = True,
    bounds: Bounds | None = None,
    others: Mapping[str, ExecutorFactory] | None = None,
) -> ReplayRuntime:
    """Return the replay, which runs programs in etdev's interpreter.

    ``others`` maps names of delegates to further executors, in addition to the installed executors. ``inplace`` lists
    kernels that may write an output over an operand, in addition to those in etdev's own table. Pass the table with
    which the program was linked.
    """
    from etdev.runtime.interpreter.delegates import executors
    from etdev.runtime.replay import ReplayRuntime

    found = {**executors(), **(others or {})}
    return ReplayRuntime(device_map, inplace={**DEFAULT, **inplace}, poison=poison, bounds=bounds, executors=found)


def stock_obstacle(program: Program, required: Requirements, runtime: StockRuntime) -> str | None:
    """Return the reason why the runtime of the ExecuTorch wheel cannot run the program; None if it can.

    A program that uses devices other than the host cannot run in this runtime. The wheel may also lack an operator or
    a backend that the program needs.
    """
    devices = named_devices(program)
    if devices:
        return f"the stock Python runtime has no devices, but the program uses {named(devices)}"
    found = lacking(required, runtime, "the wheel's runtime")
    return None if found is None else found.reason


def lacking(
    required: Requirements, runtime: StockRuntime | NativeRuntime, name: str, addition: str | None = None
) -> Obstacle | None:
    """Return an obstacle if the runtime lacks required operators or backends; None if it has all of them.

    ``required`` contains the operators and backends that the program needs. ``name`` describes the runtime in the
    message. ``addition`` is advice on how to add an operator or a backend.
    """
    operators = {each for names in required.operators.values() for each in names} - runtime.operators
    if operators:
        return Obstacle(f"{name} has no kernel for {', '.join(sorted(operators))}", addition)
    delegates = {each for names in required.delegates.values() for each in names}
    if delegates - runtime.backends:
        return Obstacle(f"{name} has no backend {', '.join(sorted(delegates - runtime.backends))}", addition)
    if delegates - runtime.usable_backends:
        found = ", ".join(sorted(delegates - runtime.usable_backends))
        return Obstacle(f"{name} does not find a library for its backend {found}")
    return None


class Runtime(Protocol):
    """A runtime that loads a program and calls its methods.

    The stock and the native runtime each run in a separate process. The replay runs in this process. All runtimes raise
    :class:`~etdev.runtime.stock.ProgramFailureError` if the program fails.
    """

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        """Load a program with its data files, and return the names of its methods.

        If ``shared`` is True, all methods use the same planned buffers.
        """

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        """Call a method and return its outputs. If ``fresh`` is True, the call starts from initial state."""
