"""What memory a worker has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etdev.devices import HOST, Device, DeviceType, parse_device
from etdev.runtime.allocator import Registry
from etdev.runtime.device_map import SIMULATED, parse_device_map, registry_for
from etdev.runtime.host import HostAllocator
from etdev.runtime.orchestrator.errors import PlacementError


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The memory of one worker: ``cpu``, ``cuda:1``, or ``sim``, a simulated device that the host cannot read."""

    memory: str = "cpu"
    capacity: int = 1 << 32
    """Bytes of a simulated device."""
    device_map: str = ""
    """What stands for the devices of programs on this worker, ``cuda:0=sim,cuda:1=sim``; ``memory`` is one of them."""

    def open(self) -> tuple[Registry, Device]:
        """Where the worker is: what allocates memory there, and the device whose memory is the worker's own."""
        if self.memory == SIMULATED:
            simulated = parse_device_map(f"{_FIRST}={SIMULATED}")
            return registry_for(simulated, capacity=self.capacity), _FIRST
        device = parse_device(self.memory)
        if device.is_host and not self.device_map:
            return Registry(HostAllocator()), device
        device_map = parse_device_map(self.device_map) if self.device_map else {}
        return registry_for(device_map, capacity=self.capacity), device


_FIRST = Device(DeviceType.CUDA, 0)
"""What a simulated device says it is."""


def parse_workers(workers: int | Sequence[str | WorkerSpec]) -> tuple[WorkerSpec, ...]:
    """The workers that somebody asks for: how many, or the memory of each."""
    each = (str(HOST),) * workers if isinstance(workers, int) else workers
    found = tuple(WorkerSpec(one) if isinstance(one, str) else one for one in each)
    if not found:
        raise PlacementError("an orchestrator without workers", hint="ask for one at least: `workers=1`")
    for spec in found:
        if spec.memory != SIMULATED:
            parse_device(spec.memory)
    return found
