"""The native runtime for a program: started if this machine can run the program in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from etdev.errors import MissingRequirementError
from etdev.execution.availability import absent, remedy
from etdev.execution.runtimes import torch_obstacle
from etdev.pipeline.project.runtime_contents import requirements
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.runtime.device_map import NO_MAP, DeviceMap
from etdev.runtime.native import NativeRuntime, host_executable
from etdev.runtime.native.devices import Devices, devices_for


@contextmanager
def open_native(
    program: Program, device_map: DeviceMap = NO_MAP, *, devices: Devices | None = None, watch: bool = True
) -> Iterator[NativeRuntime]:
    """Yield ExecuTorch's C++ runtime for a program. It is compiled if this is its first use.

    The program's devices are those of ``device_map``, or ``devices``. With ``watch``, unused bytes hold poison, and a
    crash names its instruction. Raises :class:`~etdev.errors.MissingRequirementError` if this machine lacks a tool or a
    device, or if the runtime lacks an operator or a backend.
    """
    problem = torch_obstacle()
    if problem is not None:
        raise MissingRequirementError(problem)
    named = named_devices(program)
    if devices is None:
        reason = absent(named, device_map)
        if reason is not None:
            raise MissingRequirementError(reason, hint=remedy(named))
        devices = devices_for(named, device_map)
    with NativeRuntime(host_executable(), devices=devices, watch=watch) as runtime:
        reason = _lacking(program, runtime)
        if reason is not None:
            raise MissingRequirementError(reason)
        yield runtime


def _lacking(program: Program, runtime: NativeRuntime) -> str | None:
    """Return what the runtime lacks for a program; None if it lacks nothing."""
    required = requirements(program)
    operators = {name for names in required.operators.values() for name in names} - runtime.operators
    if operators:
        return f"ExecuTorch's C++ libraries have no kernel for {', '.join(sorted(operators))}"
    delegates = {name for names in required.delegates.values() for name in names}
    if delegates - runtime.backends:
        return f"ExecuTorch's C++ libraries have no backend {', '.join(sorted(delegates - runtime.backends))}"
    if delegates - runtime.usable_backends:
        names = ", ".join(sorted(delegates - runtime.usable_backends))
        return f"no library was found for the backend {names}"
    return None
