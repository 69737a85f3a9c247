"""Devices with memory, and their names: ``cpu``, ``cuda:0``, ``cuda:1``.

The types are those of ``DeviceType`` in ExecuTorch's schema. To add a type, add a member here with the schema's number,
and an allocator in :mod:`etdev.runtime`. Runtimes refuse files with unknown device types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from etdev.errors import UsageError

MAX_INDEX = 127
"""Largest index of a device. The file stores the index as a signed 8-bit integer."""
TARGET_DEVICE = "target_device"
"""Key of the compile spec that specifies the device of a delegate."""


class DeviceType(IntEnum):
    """Type of device. Each type has separate memory."""

    CPU = 0
    CUDA = 1


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A device. Devices are sorted like the buffers of a program: the host first, then by type and index."""

    type: DeviceType = DeviceType.CPU
    index: int = 0
    """Index among the devices of the same type."""

    @property
    def is_host(self) -> bool:
        """Return whether this device is the host, whose memory the runtime and its kernels use."""
        return self.type is DeviceType.CPU

    def __str__(self) -> str:
        return "cpu" if self.is_host else f"{self.type.name.lower()}:{self.index}"


HOST = Device()


class DeviceNameError(UsageError):
    """Error for a name that is not the name of a device."""


def parse_device(text: str) -> Device:
    """Parse the name of a device: ``cpu``, ``cuda:1``, or ``cuda`` for the first CUDA device. Case does not matter.

    Raises :class:`DeviceNameError` with the valid names as hint. There is no name for "any device", because a file's
    devices are fixed when the file is built.
    """
    found = re.fullmatch(r"([a-z_]\w*)(?::(\d{1,9}))?", text.strip(), re.ASCII | re.IGNORECASE)
    kind = found and DeviceType.__members__.get(found[1].upper())
    if found is None or kind is None:
        raise DeviceNameError(f"{text!r} is not a device", hint=f"use one of {valid_names()}")
    index = int(found[2] or 0)
    if index > (0 if kind is DeviceType.CPU else MAX_INDEX):
        raise DeviceNameError(f"there is no device {text!r}", hint=f"use one of {valid_names()}")
    return Device(kind, index)


def valid_names() -> str:
    """Return a text that lists the names that :func:`parse_device` accepts."""
    others = [f"{kind.name.lower()}:0 to {kind.name.lower()}:{MAX_INDEX}" for kind in DeviceType if kind]
    return ", ".join(["cpu", *others])
