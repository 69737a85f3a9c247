"""Measurement of the memory that a program uses outside of its planned buffers, in ExecuTorch's C++ runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from etdev.errors import MissingRequirementError
from etdev.execution.native import open_native
from etdev.pipeline.results.result_parts import MemoryOutside
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.runtime.native.devices import NO_DEVICES, simulated_devices
from etdev.runtime.native.measure import Outside, is_steady, measure_memory
from etdev.runtime.stock import ProgramFailureError


def measure_outside(
    path: Path,
    data: Sequence[Path],
    program: Program,
    calls: Iterable[tuple[str, Sequence[Any]]],
    libraries: Sequence[Path] = (),
) -> tuple[MemoryOutside, ...] | str:
    """Measure the memory of each called method outside of its planned buffers. If this fails, return the reason.

    ``path`` and ``data`` are the files of ``program``. ``calls`` contains the methods to call and their inputs.
    ``libraries`` are native libraries to open, in addition to those that packages register. All devices are simulated.
    """
    named = named_devices(program)
    devices = simulated_devices(max(device.index for device in named) + 1) if named else NO_DEVICES
    try:
        with open_native(program, devices=devices, libraries=libraries, watch=is_steady(program)) as runtime:
            found = measure_memory(runtime, program, path, calls, data=data)
    except MissingRequirementError as error:
        return f"{error.message}; {error.hint}" if error.hint else error.message
    except ProgramFailureError as error:
        return f"the program failed: {error}"
    return memory_outside(found)


def memory_outside(found: Mapping[str, Outside]) -> tuple[MemoryOutside, ...]:
    """Return what was measured of each method as a part of a result."""
    return tuple(
        MemoryOutside(method, item.method_pool, item.temporary_pool, item.heap) for method, item in found.items()
    )
