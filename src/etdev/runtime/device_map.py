"""Device maps, which assign devices of this machine to those of a program: ``cuda:0=sim,cuda:1=sim``."""

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
"""Device of the program → ``sim``, or the name of a device of this machine."""

NO_MAP: DeviceMap = MappingProxyType({})
"""Map in which every device is itself."""

_FORMS = "write `DEVICE=sim` or `DEVICE=DEVICE`, with commas between several: `cuda:0=sim,cuda:1=sim`"


def parse_device_map(text: str) -> DeviceMap:
    """Parse a map of pairs with commas between them: ``cuda:0=sim,cuda:1=cuda:0``.

    Raises :class:`~etdev.errors.UsageError`, also for an empty text or pair, which an unset variable produces.
    """
    found: dict[Device, str] = {}
    for pair in (part.strip() for part in text.split(",")):
        name, equals, kind = (part.strip() for part in pair.partition("="))
        if not name or not equals or not kind:
            raise UsageError(f"{pair!r} maps no device" if pair else _emptiness(text), hint=_FORMS)
        device = parse_device(name)
        if device.is_host:
            raise UsageError("the host is not mapped to anything", hint="map devices: `cuda:0=sim`")
        if device in found:
            raise UsageError(f"{device} is mapped twice", hint="map it once")
        found[device] = _target(device, kind)
    _check_kinds(found)
    return MappingProxyType(found)


def _emptiness(text: str) -> str:
    if not text.strip(" ,"):
        return "the device map is empty"
    return f"a comma of the device map {text!r} has nothing next to it"


def _target(device: Device, kind: str) -> str:
    if kind.lower() == SIMULATED:
        return SIMULATED
    try:
        target = parse_device(kind)
    except DeviceNameError as error:
        raise UsageError(f"{device} cannot be mapped to {kind!r}", hint=f"`sim`, or a device: {error.hint}") from None
    if target.type is not device.type:
        raise UsageError(f"{device} cannot be mapped to {target}, which is of another type", hint="map it to `sim`")
    return str(target)


def _check_kinds(found: DeviceMap) -> None:
    """Raise an error if only some devices of a type are simulated, because a type has one allocator."""
    for kind in {device.type for device in found}:
        targets = {target == SIMULATED for device, target in found.items() if device.type is kind}
        if len(targets) > 1:
            raise UsageError(
                f"some {kind.name} devices are mapped to simulated ones, some to real ones",
                hint="a type of device has one allocator: map all of them to `sim`, or none",
            )


def is_simulated(device_map: DeviceMap, device: Device) -> bool:
    """Return whether a device of the program is simulated."""
    return device_map.get(device) == SIMULATED


def registry_for(device_map: DeviceMap = NO_MAP, *, capacity: int = 1 << 32) -> Registry:
    """Return a new registry for the host, the simulated devices of a map, and visible CUDA devices.

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
    """Return the process's registry, with an allocator for CUDA if a device is visible."""
    if DeviceType.CUDA not in DEFAULT_REGISTRY.types() and cuda_is_visible():
        DEFAULT_REGISTRY.register(CudaAllocator())
    return DEFAULT_REGISTRY
