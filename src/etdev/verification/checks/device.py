"""Check *device*: allocate and test the program's memory on its devices, and judge its replay there.

The check needs the devices themselves. :mod:`etdev.verification.allocations` tests their memory, and also runs on
simulated devices. The check *replay* runs the program on the devices.
"""

from __future__ import annotations

from etdev.errors import MissingRequirementError
from etdev.execution.availability import absent, named, simulated
from etdev.pipeline.results.result import NO_DEVICES, CheckResult
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.runtime.allocator import Registry
from etdev.runtime.device_map import DeviceMap, registry_for
from etdev.units import format_size
from etdev.verification.allocations import Allocations, DelegateInputs, check_allocations


def device_obstacle(program: Program, device_map: DeviceMap) -> str | None:
    """Return why there are no devices to test; None if there are."""
    devices = named_devices(program)
    if not devices:
        return NO_DEVICES
    reason = absent(devices, device_map)
    mapped = simulated(devices, device_map)
    if reason is None and mapped:
        return f"{named(mapped)} {'is' if len(mapped) == 1 else 'are'} simulated"
    return reason


def check_device(
    program: Program,
    device_map: DeviceMap,
    replay: CheckResult,
    *,
    alignment: int,
    inputs: DelegateInputs | None = None,
) -> CheckResult:
    """Run the check.

    ``replay`` is the result of the check *replay* on the same devices. The other parameters are those of
    :func:`~etdev.verification.allocations.check_allocations`.
    """
    obstacle = device_obstacle(program, device_map)
    if obstacle is not None:
        return CheckResult(name="device", status="not run", summary=obstacle)
    return check_memory(program, registry_for(device_map), replay, alignment=alignment, inputs=inputs)


def check_memory(
    program: Program,
    registry: Registry,
    replay: CheckResult,
    *,
    alignment: int,
    inputs: DelegateInputs | None = None,
) -> CheckResult:
    """Test the memory of a registry's devices, and combine the result with the replay on them."""
    try:
        found = check_allocations(program, registry, alignment=alignment, inputs=inputs)
    except MissingRequirementError as error:
        return CheckResult(name="device", status="not run", summary=error.message, lacking=True)
    problems = found.problems
    if replay.status == "failed":
        problems = (*problems, *(f"the replay there failed: {text}" for text in replay.problems))
    check = CheckResult(
        name="device",
        status="passed",
        summary=_summary(found, replay),
        outputs=replay.outputs,
        allocations=found.buffers,
        device_memory=found.devices,
    )
    if problems:
        return check.model_copy(update={"status": "failed", "summary": problems[0], "problems": problems})
    if replay.status == "not run":
        reason = f"its memory holds, but it was not replayed there: {replay.summary}"
        return check.model_copy(update={"status": "not run", "summary": reason})
    return check


def _summary(found: Allocations, replay: CheckResult) -> str:
    if not found.buffers:
        return f"no buffers of its own are planned there; replayed there: {replay.summary}"
    buffers = ", ".join(f"{item.device} {format_size(item.size)} in {item.memory}" for item in found.buffers)
    extents = sum(item.extents for item in found.buffers)
    written = f"{extents:,} extent{'s' * (extents != 1)} written and read back"
    return f"{buffers}; {written}, all freed; replayed there: {replay.summary}"
