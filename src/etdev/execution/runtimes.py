"""Runtimes that call programs, and what prevents one from running a program here."""

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
    """A reason why a program cannot be replayed here, and the remedy."""

    reason: str
    remedy: str | None = None


def replay_obstacle(program: Program, device_map: DeviceMap) -> Obstacle | None:
    """Return why the program cannot be replayed here; None if it can."""
    problem = torch_obstacle()
    if problem is not None:
        return Obstacle(problem)
    from etdev.runtime.replay import missing_executors, missing_kernels

    delegates = missing_executors(program)  # Checked first: without executors, no device would help.
    if delegates:
        return Obstacle(f"{', '.join(delegates)} cannot be replayed: no executor for its blobs is installed")
    devices = named_devices(program)
    reason = absent(devices, device_map)
    if reason is not None:
        return Obstacle(reason, remedy(devices))
    operators = missing_kernels(program)
    return Obstacle(f"the replay has no kernel for {', '.join(operators)}") if operators else None


def torch_obstacle() -> str | None:
    """Return why torch is not available; None if it is."""
    package = find_packages("torch", remedy=BUILD_EXTRA)
    if not package.available:
        return f"{package.reason}; `{package.remedy}` brings it"
    try:
        import torch  # noqa: F401
    except ImportError as error:
        return f"the package 'torch' cannot be imported: {error}"
    return None


def open_replay(
    device_map: DeviceMap, inplace: InPlaceTable = DEFAULT, *, poison: bool = True, bounds: Bounds | None = None
) -> ReplayRuntime:
    """Return the interpreter.

    ``inplace`` is the table of kernels that the program was linked with, in addition to etdev's own.
    """
    from etdev.runtime.replay import ReplayRuntime

    return ReplayRuntime(device_map, inplace={**DEFAULT, **inplace}, poison=poison, bounds=bounds)


def stock_obstacle(program: Program, required: Requirements, runtime: StockRuntime) -> str | None:
    """Return why the wheel's runtime cannot run the file; None if it can.

    It may lack something that the file names, or compute a wrong result.
    """
    devices = named_devices(program)
    if devices:
        return f"the stock Python runtime ignores devices, and the program names {named(devices)}"
    operators = {name for names in required.operators.values() for name in names} - runtime.operators
    if operators:
        return f"the wheel's runtime has no kernel for {', '.join(sorted(operators))}"
    delegates = {name for names in required.delegates.values() for name in names}
    if delegates - runtime.backends:
        return f"the wheel's runtime has no backend {', '.join(sorted(delegates - runtime.backends))}"
    if delegates - runtime.usable_backends:
        names = ", ".join(sorted(delegates - runtime.usable_backends))
        return f"the wheel's runtime finds no library for its backend {names}"
    return None


class Runtime(Protocol):
    """A runtime that loads a program and calls its methods: the stock runtime in its own process, or the replay here.

    Both raise :class:`~etdev.runtime.stock.ProgramFailureError` if the program fails.
    """

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        """Open a program with its data files, and return the names of its methods.

        If ``shared`` is true, all methods have the same buffers.
        """

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        """Return the outputs of one call; ``fresh`` starts from initial state."""
