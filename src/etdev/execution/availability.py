"""Availability of a program's devices on this machine, and notes on the device map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from etdev.devices import Device, DeviceType, parse_device
from etdev.pipeline.results.result import CheckResult
from etdev.runtime.cuda import cuda_is_visible
from etdev.runtime.device_map import DeviceMap, is_simulated


def simulated(devices: Sequence[Device], device_map: DeviceMap) -> tuple[Device, ...]:
    """Return the devices that the device map simulates."""
    return tuple(device for device in devices if is_simulated(device_map, device))


def left_out(devices: Sequence[Device], device_map: DeviceMap) -> str | None:
    """Return a message if the map lacks a device, but simulates another device of the same type; otherwise None."""
    types = {device.type for device in simulated(tuple(device_map), device_map)}
    left = [device for device in devices if device.type in types and device not in device_map]
    if not left:
        return None
    return f"the program uses {named(left)}, but the device map has entries only for {named(sorted(device_map))}"


def absent(devices: Sequence[Device], device_map: DeviceMap) -> str | None:
    """Return a message such as ``no CUDA device``.

    Return None if each device is available on this machine or simulated.
    """
    reason = left_out(devices, device_map)
    if reason is not None:
        return reason
    real = [device for device in devices if not is_simulated(device_map, device)]
    if not real:
        return None
    others = sorted({device.type.name for device in real if device.type is not DeviceType.CUDA})
    if others:
        return f"this machine cannot run programs on {', '.join(others)} devices"
    if not cuda_is_visible():
        return "no CUDA device"
    import torch

    count = torch.cuda.device_count()
    for device in real:
        ordinal = int(device_map[device].partition(":")[2]) if device in device_map else device.index
        if ordinal >= count:
            return f"cuda:{ordinal} is not available: this machine has {count} CUDA device{'s' * (count != 1)}"
    return None


_ADVICE = "use `--device-map"


def remedy(devices: Sequence[Device]) -> str:
    """Return a hint with the command-line option that simulates these devices."""
    pairs = ",".join(f"{device}=sim" for device in devices)
    return f"{_ADVICE} {pairs}` to simulate {named(devices)}"


def advises_map(hint: str | None) -> bool:
    """Return True if :func:`remedy` made this hint. A note of :func:`describe_map` then has the same advice."""
    return hint is not None and hint.startswith(_ADVICE)


def describe_map(answers: Iterable[Sequence[CheckResult]], device_map: DeviceMap) -> Iterator[str]:
    """Yield notes on the device map. ``answers`` contains the check results of each program.

    A note lists devices that the user could simulate, or devices of the map that no program uses.
    """
    known: set[Device] = set()
    lacking: set[Device] = set()
    all_read = True
    for checks in answers:
        by_name = {check.name: check for check in checks}
        names, replay = by_name["bytes"].devices, by_name["replay"]
        all_read = all_read and names is not None
        devices = {parse_device(name) for name in names or ()}
        known |= devices
        if replay.status == "not run" and advises_map(replay.hint):
            lacking |= devices
    if lacking:
        yield remedy(sorted(lacking))
    if all_read:
        yield from describe_unused(known, device_map)


def describe_unused(devices: Iterable[Device], device_map: DeviceMap) -> Iterator[str]:
    """Yield a note if the map contains devices that no program uses. ``devices`` are the devices in use."""
    used = sorted(set(devices))
    others = [device for device in sorted(device_map) if device not in used]
    if others:
        yield f"no program uses {named(others)} of the device map; used devices: {named(used) or 'none'}"


def named(devices: Sequence[Device]) -> str:
    """Return the names of devices as text: ``cuda:0 and cuda:1``."""
    texts = [str(device) for device in devices]
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]])) if texts else ""
