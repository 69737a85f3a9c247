"""Memory that a program takes outside of its planned buffers, measured in ExecuTorch's C++ runtime."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from etdev.errors import MissingRequirementError
from etdev.execution.native import open_native
from etdev.inspection.breakdown import Parts
from etdev.pipeline.results.result_parts import MemoryOutside
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.runtime.native.devices import NO_DEVICES, simulated_devices
from etdev.runtime.native.measure import measure_memory
from etdev.runtime.stock import ProgramFailureError


def ram_parts(planned: int, outside: tuple[MemoryOutside, ...] | str) -> Parts | str:
    """Return the parts of a target's RAM on the host, with all methods loaded; a text says why one is not known.

    ``planned`` is the planned memory in bytes. Methods share the temporary pool. Every other part is the sum over the
    methods.
    """
    if isinstance(outside, str):
        return outside
    heaps = [item.heap for item in outside]
    if None in heaps:
        return "heap memory is counted only with glibc"
    return Parts(
        (
            ("planned memory", planned),
            ("method pools", sum(item.method_pool for item in outside)),
            ("temporary pool", max((item.temporary_pool for item in outside), default=0)),
            ("heap of delegates", sum(heap or 0 for heap in heaps)),
        )
    )


def measure_outside(
    path: Path, data: Sequence[Path], program: Program, calls: Iterable[tuple[str, Sequence[Any]]]
) -> tuple[MemoryOutside, ...] | str:
    """Return the memory of each method that is called, or a text that says why it cannot be measured.

    ``path`` and ``data`` are the files of ``program``; ``calls`` are methods with their inputs. Devices are simulated.
    """
    named = named_devices(program)
    devices = simulated_devices(max(device.index for device in named) + 1) if named else NO_DEVICES
    try:
        with open_native(program, devices=devices, watch=False) as runtime:
            found = measure_memory(runtime, program, path, calls, data=data)
    except MissingRequirementError as error:
        return f"{error.message}; {error.hint}" if error.hint else error.message
    except ProgramFailureError as error:
        return f"the program failed: {error}"
    return tuple(
        MemoryOutside(method, item.method_pool, item.temporary_pool, item.heap) for method, item in found.items()
    )
