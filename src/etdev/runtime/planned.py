"""The planned buffers of methods: each allocated on its device, all released together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from etdev.devices import Device
from etdev.errors import EtdevError
from etdev.program import model as m
from etdev.runtime.allocator import Registry
from etdev.runtime.errors import PlannedBufferError, RunError
from etdev.runtime.interpreter.tensors import Memory
from etdev.runtime.memory import DeviceMemoryBuffer, MemoryManager
from etdev.runtime.owners import MoveOnly

BufferKey = tuple[Device, int]
"""Device, and index into ``non_const_buffer_sizes``: methods that share memory share what both have."""

PLANNED_ALIGNMENT = 64
"""Of a planned buffer."""


def buffer_sizes(plans: Iterable[m.ExecutionPlan], home: Device) -> dict[BufferKey, int]:
    """The planned buffers of methods that share memory: each as large as the largest of them needs it."""
    found: dict[BufferKey, int] = {}
    for plan in plans:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            if index:
                key = placed(plan.buffer_device(index), home), index
                found[key] = max(found.get(key, 0), size)
    return found


def placed(device: Device, home: Device) -> Device:
    """Where something is that the file puts on a device. What a delegate's program has on its host is on its device."""
    return home if device.is_host else device


class PlannedMemory(MoveOnly):
    """Planned buffers that exist. A context manager; closing it a second time does nothing."""

    def __init__(self, sizes: Mapping[BufferKey, int], registry: Registry, what: str) -> None:
        self._buffers: dict[BufferKey, DeviceMemoryBuffer] = {}
        self.memories: dict[BufferKey, Memory] = {}
        for (device, index), size in sizes.items():
            try:
                buffer = DeviceMemoryBuffer.create(
                    size, device.type, device.index, PLANNED_ALIGNMENT, registry=registry
                )
            except EtdevError as error:
                self.close()
                raise buffer_error(f"{what} cannot be loaded", index, device, size, registry, error) from error
            self._buffers[device, index] = buffer
            self.memories[device, index] = Memory(device, buffer.data(), size, allocator=buffer.allocator)
        self.clear()

    def clear(self) -> None:
        """Fill all buffers with zeros, each on its device."""
        for memory in self.memories.values():
            if memory.size:
                memory.fill(0, memory.size, bytes(1))

    def close(self) -> None:
        """Free all buffers."""
        self.memories.clear()
        for buffer in self._buffers.values():
            buffer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def given_memory(
    plan: m.ExecutionPlan, manager: MemoryManager, registry: Registry, home: Device
) -> dict[BufferKey, Memory]:
    """The planned buffers of a method that somebody else allocated. Raises if they are not what the method needs."""
    planned = manager.planned_memory()
    devices = manager.planned_buffer_devices()
    found: dict[BufferKey, Memory] = {}
    for index, size in enumerate(plan.non_const_buffer_sizes):
        if not index:
            continue
        device = placed(plan.buffer_device(index), home)
        where = f"method {plan.name!r}"
        if planned is None or index > len(planned.buffers) or planned.buffers[index - 1].size < size:
            raise RunError(f"planned buffer {index} of {size} bytes is not among the memory given", where=where)
        given = devices[index - 1] if devices else Device()
        if given != device:
            raise RunError(f"planned buffer {index} belongs on {device}, the memory given is on {given}", where=where)
        span = planned.buffers[index - 1]
        allocator = registry.get(device.type)
        if size:
            allocator.find(span.address, size, device.index)
        found[device, index] = Memory(device, span.address, size, allocator=allocator)
    return found


def buffer_error(
    what: str, index: int, device: Device, size: int, registry: Registry, cause: EtdevError
) -> PlannedBufferError:
    """What a failure with a planned buffer is reported as."""
    try:
        info = registry.get(device.type).memory_info(device.index)
    except EtdevError:
        info = None
    return PlannedBufferError(what, index, device, size, info.free if info else None, cause)
