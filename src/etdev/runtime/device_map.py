"""Device maps, which replace devices of a program with simulated or other devices: ``cuda:0=sim,cuda:1=cuda:0``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from etdev.devices import Device, DeviceNameError, DeviceType, parse_device
from etdev.errors import UsageError
from etdev.runtime.allocator import DEFAULT_REGISTRY, Registry
from etdev.runtime.cuda import CudaAllocator, cuda_is_visible
from etdev.runtime.host import HostAllocator
from etdev.runtime.simulated import SimulatedDevice

SIMULATED = "sim"
"""Name of a simulated device in a map."""

DeviceMap = Mapping[Device, str]
"""Maps a device of the program to ``sim`` or to the name of a device of this machine."""

NO_MAP: DeviceMap = MappingProxyType({})
"""An empty map: every device of the program is the device of the same name on this machine."""

_FORMS = "write pairs `DEVICE=sim` or `DEVICE=DEVICE`, separated by commas: `cuda:0=sim,cuda:1=sim`"


def parse_device_map(text: str) -> DeviceMap:
    """Parse a device map: pairs separated by commas, as in ``cuda:0=sim,cuda:1=cuda:0``.

    Raises :class:`~etdev.errors.UsageError` for an invalid map. An empty text is also invalid, because it often comes
    from an unset variable.
    """
    found: dict[Device, str] = {}
    for pair in (part.strip() for part in text.split(",")):
        name, equals, kind = (part.strip() for part in pair.partition("="))
        if not name or not equals or not kind:
            raise UsageError(
                f"{pair!r} is not a pair `DEVICE=sim` or `DEVICE=DEVICE`" if pair else _emptiness(text), hint=_FORMS
            )
        device = parse_device(name)
        if device.is_host:
            raise UsageError("a device map cannot replace the host", hint="map only other devices: `cuda:0=sim`")
        if device in found:
            raise UsageError(f"{device} is mapped twice", hint="keep one of the two pairs")
        found[device] = _target(device, kind)
    _check_kinds(found)
    return MappingProxyType(found)


def _emptiness(text: str) -> str:
    if not text.strip(" ,"):
        return "the device map is empty"
    return f"the device map {text!r} has an empty pair next to a comma"


def _target(device: Device, kind: str) -> str:
    if kind.lower() == SIMULATED:
        return SIMULATED
    try:
        target = parse_device(kind)
    except DeviceNameError as error:
        raise UsageError(
            f"{device} cannot be mapped to {kind!r}", hint=f"map it to `sim` or to a device; {error.hint}"
        ) from None
    if target.type is not device.type:
        raise UsageError(f"{device} cannot be mapped to {target}, which is of another type", hint="map it to `sim`")
    return str(target)


def _check_kinds(found: DeviceMap) -> None:
    """Raise an error if a type has both simulated and real devices, since each type has only one allocator."""
    for kind in {device.type for device in found}:
        targets = {target == SIMULATED for device, target in found.items() if device.type is kind}
        if len(targets) > 1:
            raise UsageError(
                f"the device map mixes simulated and real {kind.name} devices",
                hint=f"map either all {kind.name} devices to `sim` or none",
            )


def is_simulated(device_map: DeviceMap, device: Device) -> bool:
    """Return True if a map replaces a device of the program with a simulated one."""
    return device_map.get(device) == SIMULATED


def registry_for(device_map: DeviceMap = NO_MAP, *, capacity: int = 1 << 32) -> Registry:
    """Return a new registry with the host, the map's simulated devices, and CUDA devices if any are visible.

    Each simulated device has ``capacity`` bytes.
    """
    registry = Registry(HostAllocator())
    for kind in DeviceType:
        mapped = {device.index: target for device, target in device_map.items() if device.type is kind}
        if SIMULATED in mapped.values():
            registry.register(SimulatedDevice(kind, count=max(mapped) + 1, capacity=capacity))
        elif kind is DeviceType.CUDA and (mapped or cuda_is_visible()):
            registry.register(CudaAllocator({index: parse_device(target).index for index, target in mapped.items()}))
    return registry


def default_registry() -> Registry:
    """Return the process's registry; first add an allocator for CUDA if a CUDA device is visible."""
    if DeviceType.CUDA not in DEFAULT_REGISTRY.types() and cuda_is_visible():
        DEFAULT_REGISTRY.register(CudaAllocator())
    return DEFAULT_REGISTRY
