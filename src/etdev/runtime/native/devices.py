"""Devices that a program uses in the native runtime: simulated devices, CUDA devices or none."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etdev.devices import Device, parse_device
from etdev.errors import MissingRequirementError
from etdev.runtime.device_map import DeviceMap, is_simulated
from etdev.runtime.native.wire import Request

_CAPACITY = 1 << 32
_ABSENT, _SIMULATED, _CUDA = range(3)


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that a program uses: none, simulated devices or CUDA devices."""

    kind: int = _ABSENT
    count: int = 0
    """Number of simulated devices."""
    capacity: int = _CAPACITY
    """Size of each simulated device's memory in bytes."""
    library: str = ""
    """Path of CUDA's runtime library."""
    ordinals: Mapping[int, int] = field(default_factory=dict)
    """Maps a device index of the program to the number of a CUDA device on this machine."""

    @property
    def host_can_write(self) -> bool:
        """True if the host can fill the memory of the devices with poison."""
        return self.kind != _CUDA

    def add_to(self, request: Request) -> None:
        """Add the description of the devices to a request."""
        request.add("B", self.kind)
        if self.kind == _SIMULATED:
            request.add("QQ", self.count, self.capacity)
        elif self.kind == _CUDA:
            request.text(self.library)
            request.add("I", len(self.ordinals))
            for index, ordinal in self.ordinals.items():
                request.add("bi", index, ordinal)


NO_DEVICES = Devices()
"""Value for a program that uses only the host."""


def simulated_devices(count: int = 1, capacity: int = _CAPACITY) -> Devices:
    """Return simulated devices, which have ``capacity`` bytes each."""
    return Devices(_SIMULATED, count, capacity)


def devices_for(named: Sequence[Device], device_map: DeviceMap) -> Devices:
    """Return the native runtime's devices for a program that uses the devices ``named``.

    Raises :class:`~etdev.errors.MissingRequirementError` if CUDA's runtime library is not found.
    """
    if not named:
        return NO_DEVICES
    if any(is_simulated(device_map, device) for device in named):
        return simulated_devices(max(device.index for device in named) + 1)
    ordinals = {device.index: parse_device(device_map.get(device, str(device))).index for device in named}
    return Devices(_CUDA, library=cuda_runtime_library(), ordinals=ordinals)


def cuda_runtime_library() -> str:
    """Return CUDA's runtime library: a path in NVIDIA's Python packages, or the name of the system's library.

    Raises :class:`~etdev.errors.MissingRequirementError` if the library is not found.
    """
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    found = sorted(path for folder in folders for path in folder.glob("*/lib/libcudart.so*"))
    if found:
        return os.fspath(found[-1])
    named = ctypes.util.find_library("cudart")
    if named is None:
        raise MissingRequirementError(
            "CUDA's runtime library (libcudart) was not found",
            hint="install torch with CUDA, or CUDA's runtime package",
        )
    return named
