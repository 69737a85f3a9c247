"""What stands for a program's devices on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from etdev.devices import Device, DeviceType
from etdev.runtime.cuda import cuda_is_visible
from etdev.runtime.device_map import DeviceMap, is_simulated


def simulated(devices: Sequence[Device], device_map: DeviceMap) -> tuple[Device, ...]:
    """Those of them that the map has simulated."""
    return tuple(device for device in devices if is_simulated(device_map, device))


def absent(devices: Sequence[Device], device_map: DeviceMap) -> str | None:
    """Why some of these devices are not here: ``no CUDA device``; None if all are, or are simulated."""
    real = [device for device in devices if not is_simulated(device_map, device)]
    if not real:
        return None
    others = sorted({device.type.name for device in real if device.type is not DeviceType.CUDA})
    if others:
        return f"nothing here runs on {', '.join(others)} devices"
    if not cuda_is_visible():
        return "no CUDA device"
    import torch

    count = torch.cuda.device_count()
    for device in real:
        ordinal = int(device_map[device].partition(":")[2]) if device in device_map else device.index
        if ordinal >= count:
            return f"cuda:{ordinal} is not here, there {'is' if count == 1 else 'are'} {count}"
    return None


def remedy(devices: Sequence[Device]) -> str:
    """The option that simulates what is not here."""
    pairs = ",".join(f"{device}=sim" for device in devices)
    return f"`--device-map {pairs}` simulates {'it' if len(devices) == 1 else 'them'}"


def named(devices: Sequence[Device]) -> str:
    """``cuda:0 and cuda:1``."""
    texts = [str(device) for device in devices]
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]])) if texts else ""
