"""Check *device*: allocates and tests the program's memory on real devices.

The result also includes the checks *replay* (etdev's interpreter) and *native* (ExecuTorch's C++ runtime). Both run the
program in the memory of these devices. The memory test is in :mod:`etdev.verification.allocations`. That test can also
run on simulated devices.
"""

from __future__ import annotations

from typing import Any

from etdev.errors import MissingRequirementError
from etdev.execution.availability import absent, named, simulated
from etdev.pipeline.results.reasons import NO_DEVICES
from etdev.pipeline.results.result import CheckResult
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.runtime.allocator import Registry
from etdev.runtime.device_map import DeviceMap, registry_for
from etdev.units import format_size
from etdev.verification.allocations import Allocations, DelegateInputs, check_allocations
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.check import Check, Need
from etdev.verification.standalone_native import native_alone
from etdev.verification.subject import Subject

_ALIGNMENT = 16
"""Default alignment of planned buffers on devices, in bytes."""
_NATIVE = "ExecuTorch's C++ runtime on the device"
_HINT = "check whether other processes use the device (`nvidia-smi`), and whether another device behaves the same"


class DeviceCheck(Check):
    """Do the devices allocate the program's memory and preserve its content, and does the program run on them?"""

    name = "device"
    needs = (Need.PROGRAM, Need.SOUND)

    def applies(self, subject: Subject) -> str | None:
        return device_obstacle(subject.program, subject.device_map)

    def run(self, subject: Subject) -> CheckResult:
        """Test the devices' memory, and combine the test's result with those of the checks *replay* and *native*.

        Without a config, the check *native* cannot run. In that case, this check runs the program on random inputs in
        the native runtime.
        """
        program, registry, replay = subject.program, registry_for(subject.device_map), subject.results["replay"]
        built = subject.origin
        if built is None:
            native = native_alone(subject.path, subject.data, program, subject.device_map)
            return check_memory(program, registry, replay, native, alignment=_ALIGNMENT)
        return check_memory(
            program,
            registry,
            replay,
            subject.results["native"],
            alignment=built.project.config.targets[built.target].memory.alignment,
            inputs=None if built.linked is None else built.linked.delegate_inputs,
            **built.remedy(built.place("partitioners"), _HINT),
        )


def device_obstacle(program: Program, device_map: DeviceMap) -> str | None:
    """Return the reason why the memory cannot be tested on real devices; None if it can be tested."""
    devices = named_devices(program)
    if not devices:
        return NO_DEVICES
    reason = absent(devices, device_map)
    mapped = simulated(devices, device_map)
    if reason is None and mapped:
        return f"{named(mapped)} {'is' if len(mapped) == 1 else 'are'} simulated"
    return reason


def check_memory(
    program: Program,
    registry: Registry,
    replay: CheckResult,
    native: CheckResult,
    *,
    alignment: int,
    inputs: DelegateInputs | None = None,
    **remedy: Any,
) -> CheckResult:
    """Test the memory of the devices, and combine the test's result with ``replay`` and ``native``.

    ``registry`` provides the devices' allocators. ``replay`` and ``native`` are the results of these checks on the
    devices. If neither of them ran, the result is ``not run``.

    ``remedy`` has the location of the cause and the help for a failure. ``alignment`` and ``inputs`` have the same
    meaning as in :func:`~etdev.verification.allocations.check_allocations`.
    """
    try:
        found = check_allocations(program, registry, alignment=alignment, inputs=inputs)
    except MissingRequirementError as error:
        return not_run("device", error.message, hint=error.hint, lacking=True)
    problems = found.problems
    if replay.status == "failed":
        problems = (*problems, *(f"the replay on the device failed: {text}" for text in replay.problems))
    if native.status == "failed":
        problems = (*problems, *(f"{_NATIVE} failed: {text}" for text in native.problems))
    more: dict[str, Any] = {
        "outputs": replay.outputs,
        "allocations": found.buffers,
        "device_memory": found.devices,
    }
    if problems:
        return failed("device", problems, **more, **remedy)
    if replay.status == native.status == "not run":
        return not_run(
            "device",
            f"the memory test passed, but the program was not replayed on the device: {replay.summary}; "
            f"{_NATIVE} did not run it either: {native.summary}",
            **more,
        )
    runs = "; ".join(
        f"{'not run: ' if result.status == 'not run' else ''}{name}: {result.summary}"
        for name, result in (("replay on the device", replay), (_NATIVE, native))
    )
    return passed("device", f"{_memory(found)}; {runs}", **more)


def _memory(found: Allocations) -> str:
    if not found.buffers:
        return "no planned buffer is on a device"
    buffers = ", ".join(f"{item.device} {format_size(item.size)} in {item.memory}" for item in found.buffers)
    extents = sum(item.extents for item in found.buffers)
    written = f"{extents:,} extent{'s' * (extents != 1)} written and read back"
    return f"{buffers}; {written}, all freed"
