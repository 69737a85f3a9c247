"""Description of the memory of a worker."""

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
    """Specification of one worker's memory: ``cpu``, ``cuda:1``, or ``sim`` for a simulated device."""

    memory: str = "cpu"
    capacity: int = 1 << 32
    """Size of a simulated device, in bytes."""
    device_map: str = ""
    """Device map for programs that run on this worker, such as ``cuda:0=sim,cuda:1=sim``.

    If there is a map, ``memory`` must be ``cpu``, or a device on the left side of a pair, such as ``cuda:0``.
    The memory ``sim`` ignores the map.
    """

    def open(self) -> tuple[Registry, Device]:
        """Return two values: the worker's allocators, and the device whose memory the worker's tasks use."""
        if self.memory == SIMULATED:
            simulated = parse_device_map(f"{_FIRST}={SIMULATED}")
            return registry_for(simulated, capacity=self.capacity), _FIRST
        device = parse_device(self.memory)
        if device.is_host and not self.device_map:
            return Registry(HostAllocator()), device
        device_map = parse_device_map(self.device_map) if self.device_map else {}
        return registry_for(device_map, capacity=self.capacity), device


_FIRST = Device(DeviceType.CUDA, 0)
"""Device that programs use on a worker with the memory ``sim``."""


def parse_workers(workers: int | Sequence[str | WorkerSpec]) -> tuple[WorkerSpec, ...]:
    """Return one specification for each worker; ``workers`` is a number, or a list of memories and specifications."""
    each = (str(HOST),) * workers if isinstance(workers, int) else workers
    found = tuple(WorkerSpec(one) if isinstance(one, str) else one for one in each)
    if not found:
        raise PlacementError("an orchestrator needs at least one worker", hint="use `workers=1` or more")
    for spec in found:
        if spec.memory != SIMULATED:
            parse_device(spec.memory)
    return found
