"""Device of a partitioner's delegates.

The key ``device`` in the config sets the device. Without this key, the compile spec ``target_device`` sets the device.
If neither is set, the backend's default applies. All delegates of a partitioner have the same device, which is fixed
when the file is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from etdev.backends.base import Backend, CompileSpecValue, SpecIssue
from etdev.devices import HOST, TARGET_DEVICE, Device, DeviceNameError, DeviceType, parse_device, valid_names


def default_device(backend: Backend) -> Device:
    """Return the device with index 0 of the backend's default type, such as ``cuda:0``.

    The default type is the first of ``device_types`` that etdev knows. Return the host if etdev knows none of them.
    """
    kinds = [DeviceType[name.upper()] for name in backend.device_types if name.upper() in DeviceType.__members__]
    return Device(kinds[0]) if kinds else HOST


def placed_specs(
    backend: Backend, device: str | None, specs: Mapping[str, CompileSpecValue]
) -> dict[str, CompileSpecValue]:
    """Return the compile specs, with the canonical name of the device as ``target_device``.

    For the host, the result has no ``target_device``. ``device`` and ``specs`` must be from a config that has passed
    the checks in this module.
    """
    given = device if device is not None else _text(specs[TARGET_DEVICE]) if TARGET_DEVICE in specs else None
    place = default_device(backend) if given is None else parse_device(given)
    others = {key: value for key, value in specs.items() if key != TARGET_DEVICE}
    return others if place.is_host else {**others, TARGET_DEVICE: str(place)}


def check_device(backend: Backend, device: object) -> Iterable[tuple[str, str]]:
    """Yield a message and a hint if the backend does not support ``device``.

    Invalid device names yield nothing, because the models report them.
    """
    try:
        place = parse_device(device) if isinstance(device, str) else None
    except DeviceNameError:
        return
    if place is not None and not _serves(backend, place):
        yield _not_served(backend, place)


def check_target_device(backend: Backend, device: object, specs: Mapping[str, object]) -> Iterable[SpecIssue]:
    """Yield the issues of the compile spec ``target_device``. Yield nothing if ``specs`` has no such compile spec."""
    if TARGET_DEVICE not in specs:
        return
    value = specs[TARGET_DEVICE]
    try:
        place = parse_device(_text(value))
    except (DeviceNameError, UnicodeDecodeError, TypeError):
        yield SpecIssue(
            TARGET_DEVICE,
            f"the compile spec {TARGET_DEVICE!r} is {value!r}, which is not a device",
            f"use one of {valid_names()}",
        )
        return
    if not _serves(backend, place):
        yield SpecIssue(TARGET_DEVICE, *_not_served(backend, place))
        return
    try:
        stated = parse_device(device) if isinstance(device, str) else place
    except DeviceNameError:
        return
    if stated != place:
        yield SpecIssue(
            TARGET_DEVICE,
            f"the compile spec {TARGET_DEVICE!r} is {place}, but the partitioner's `device` is {stated}",
            "keep one of the two",
        )


def _serves(backend: Backend, device: Device) -> bool:
    return device.type.name.lower() in backend.device_types


def _not_served(backend: Backend, device: Device) -> tuple[str, str]:
    served = ", ".join(backend.device_types)
    return (
        f"the backend {backend.name!r} does not run on {device}; it supports {served}",
        "remove the device, or choose a backend that supports it; `etdev doctor` lists the devices of backends",
    )


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii")
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
