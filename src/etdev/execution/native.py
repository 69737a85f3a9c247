"""Start of the native runtime for a program, if this machine meets the requirements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from etdev.errors import MissingRequirementError
from etdev.execution.availability import absent, remedy
from etdev.execution.runtimes import lacking, torch_obstacle
from etdev.pipeline.project.runtime_contents import requirements
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.runtime.device_map import NO_MAP, DeviceMap
from etdev.runtime.native import NativeRuntime, host_executable
from etdev.runtime.native.devices import Devices, devices_for
from etdev.runtime.native.executable import Notify, ignore_notice
from etdev.runtime.native_libraries import LIBRARY_HINT, needed_libraries


@contextmanager
def open_native(
    program: Program,
    device_map: DeviceMap = NO_MAP,
    *,
    devices: Devices | None = None,
    libraries: Sequence[Path] = (),
    watch: bool = True,
    notify: Notify = ignore_notice,
) -> Iterator[NativeRuntime]:
    """Yield ExecuTorch's C++ runtime for a program. The runtime is compiled at its first use.

    The runtime uses ``devices`` or, by default, the devices that ``device_map`` assigns. ``libraries`` are native
    libraries to open, in addition to those that packages register for the program's delegates. If ``watch`` is True,
    unused bytes contain poison, and the error after a crash states the instruction. ``notify`` receives a message
    before the runtime is compiled.

    Raises :class:`~etdev.errors.MissingRequirementError` if this machine lacks a tool or a device. Also raises this
    error if a library cannot be used, or if the runtime lacks an operator or a backend.
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
    found = libraries_for(program, libraries)
    with NativeRuntime(host_executable(notify), libraries=found, devices=devices, watch=watch) as runtime:
        name = f"the native runtime, with {', '.join(path.name for path in found)}," if found else "the native runtime"
        obstacle = lacking(requirements(program), runtime, name, LIBRARY_HINT)
        if obstacle is not None:
            raise MissingRequirementError(obstacle.reason, hint=obstacle.remedy)
        yield runtime


def libraries_for(program: Program, named: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the native libraries for a program: ``named``, and those that packages register for its delegates.

    Raises the errors of :func:`~etdev.runtime.native_libraries.needed_libraries`.
    """
    return needed_libraries(set().union(*requirements(program).delegates.values()), named)
