"""Planned buffers of methods, each allocated on its device and all released together."""

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
"""Device, and index into ``non_const_buffer_sizes``. Methods that share memory share the buffers with equal keys."""

PLANNED_ALIGNMENT = 64
"""Alignment of a planned buffer, in bytes."""


def buffer_sizes(plans: Iterable[m.ExecutionPlan], home: Device) -> dict[BufferKey, int]:
    """Return the sizes of planned buffers that methods share: the maximum over the methods, in bytes."""
    found: dict[BufferKey, int] = {}
    for plan in plans:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            if index:
                key = placed(plan.buffer_device(index), home), index
                found[key] = max(found.get(key, 0), size)
    return found


def placed(device: Device, home: Device) -> Device:
    """Return the actual device of a tensor or buffer that the file puts on ``device``.

    The host of a delegate's program is the delegate's device, ``home``.
    """
    return home if device.is_host else device


class PlannedMemory(MoveOnly):
    """Allocated planned buffers. A context manager; closing it a second time has no effect."""

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
    """Return the planned buffers of a method from the caller's memory. Raise an error if they do not fit the method."""
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
    """Return the error that reports a failure with a planned buffer."""
    try:
        info = registry.get(device.type).memory_info(device.index)
    except EtdevError:
        info = None
    return PlannedBufferError(what, index, device, size, info.free if info else None, cause)
