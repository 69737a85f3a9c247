"""Check *device*: allocates and tests the program's memory on its devices, and includes the result of its replay there.

The check runs only on real devices. The memory test is in :mod:`etdev.verification.allocations`; it can also run on
simulated devices. The check *replay* runs the program on the devices.
"""

from __future__ import annotations

from typing import Any

from etdev.errors import MissingRequirementError
from etdev.execution.availability import absent, named, simulated
from etdev.pipeline.results.result import NO_DEVICES, CheckResult
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.runtime.allocator import Registry
from etdev.runtime.device_map import DeviceMap, registry_for
from etdev.units import format_size
from etdev.verification.allocations import Allocations, DelegateInputs, check_allocations
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.check import Check, Need
from etdev.verification.subject import Subject

_ALIGNMENT = 16
"""Default alignment of planned buffers on devices, in bytes."""
_HINT = "check whether other processes use the device (`nvidia-smi`), and whether another device behaves the same"


class DeviceCheck(Check):
    """Can the program's devices allocate its memory and keep the content, and does the program run there?"""

    name = "device"
    needs = (Need.PROGRAM, Need.SOUND)

    def applies(self, subject: Subject) -> str | None:
        return device_obstacle(subject.program, subject.device_map)

    def run(self, subject: Subject) -> CheckResult:
        """Test the memory, and combine the test's result with that of the check *replay* on the same devices."""
        program, registry, replay = subject.program, registry_for(subject.device_map), subject.results["replay"]
        built = subject.origin
        if built is None:
            return check_memory(program, registry, replay, alignment=_ALIGNMENT)
        return check_memory(
            program,
            registry,
            replay,
            alignment=built.project.config.targets[built.target].memory.alignment,
            inputs=None if built.linked is None else built.linked.delegate_inputs,
            **built.remedy(built.place("partitioners"), _HINT),
        )


def device_obstacle(program: Program, device_map: DeviceMap) -> str | None:
    """Return the reason why there are no real devices to test; None if there are some."""
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
    *,
    alignment: int,
    inputs: DelegateInputs | None = None,
    **remedy: Any,
) -> CheckResult:
    """Test the memory of a registry's devices, and combine the test's result with that of the replay on them.

    ``replay`` is the result of the check *replay* on the devices. ``remedy`` has the location and help for a failure.
    The other parameters are those of :func:`~etdev.verification.allocations.check_allocations`.
    """
    try:
        found = check_allocations(program, registry, alignment=alignment, inputs=inputs)
    except MissingRequirementError as error:
        return not_run("device", error.message, lacking=True)
    problems = found.problems
    if replay.status == "failed":
        problems = (*problems, *(f"the replay on the device failed: {text}" for text in replay.problems))
    more: dict[str, Any] = {
        "outputs": replay.outputs,
        "allocations": found.buffers,
        "device_memory": found.devices,
    }
    if problems:
        return failed("device", problems, **more, **remedy)
    if replay.status == "not run":
        return not_run(
            "device",
            f"the memory test passed, but the program was not replayed on the device: {replay.summary}",
            **more,
        )
    return passed("device", _summary(found, replay), **more)


def _summary(found: Allocations, replay: CheckResult) -> str:
    if not found.buffers:
        return f"no planned buffer is on a device; replay on the device: {replay.summary}"
    buffers = ", ".join(f"{item.device} {format_size(item.size)} in {item.memory}" for item in found.buffers)
    extents = sum(item.extents for item in found.buffers)
    written = f"{extents:,} extent{'s' * (extents != 1)} written and read back"
    return f"{buffers}; {written}, all freed; replay on the device: {replay.summary}"
