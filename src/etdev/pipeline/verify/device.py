"""Check *device*: is the memory to be had on the devices, does it hold what is put there, does the program run there?

It needs the devices themselves. What it does in their memory is :mod:`etdev.pipeline.verify.allocations`, which runs on
simulated ones too; that it runs there is what the check *replay* has found.
"""

from __future__ import annotations

from etdev.errors import MissingRequirementError
from etdev.pipeline.result import NO_DEVICES, CheckResult
from etdev.pipeline.verify.allocations import Allocations, DelegateInputs, check_allocations
from etdev.pipeline.verify.devices import absent, named, simulated
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.runtime.allocator import Registry
from etdev.runtime.device_map import DeviceMap, registry_for
from etdev.units import format_size


def device_obstacle(program: Program, device_map: DeviceMap) -> str | None:
    """Why there are no devices to ask; None if there are."""
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
    """Answer the check. ``replay`` is what the check of that name has found on the same devices; the rest is as for
    :func:`~etdev.pipeline.verify.allocations.check_allocations`.
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
    """Allocate through a registry, whatever devices it has, and judge that together with the replay there."""
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
