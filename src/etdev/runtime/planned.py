"""Allocation of planned buffers on their devices."""

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
"""Device and index of a planned buffer, which several methods can share.

The index is the position in ``non_const_buffer_sizes``.
"""

PLANNED_ALIGNMENT = 64
"""Alignment of planned buffers, in bytes."""


def buffer_sizes(plans: Iterable[m.ExecutionPlan], home: Device) -> dict[BufferKey, int]:
    """Return the size of each planned buffer in bytes: the maximum over the methods that share it."""
    found: dict[BufferKey, int] = {}
    for plan in plans:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            if index:
                key = placed(plan.buffer_device(index), home), index
                found[key] = max(found.get(key, 0), size)
    return found


def placed(device: Device, home: Device) -> Device:
    """Return the device of a tensor or buffer at run time.

    ``device`` is the device in the file. In a delegate's own program, the host means the delegate's device. Therefore,
    ``home`` replaces the host.
    """
    return home if device.is_host else device


class PlannedMemory(MoveOnly):
    """Allocated planned buffers; a context manager. A second call of :meth:`close` has no effect."""

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
        """Fill all buffers with zeros."""
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
    """Return the caller's memory for each planned buffer.

    Raise an error if this memory is too small or on another device.
    """
    planned = manager.planned_memory()
    devices = manager.planned_buffer_devices()
    found: dict[BufferKey, Memory] = {}
    for index, size in enumerate(plan.non_const_buffer_sizes):
        if not index:
            continue
        device = placed(plan.buffer_device(index), home)
        where = f"method {plan.name!r}"
        if planned is None or index > len(planned.buffers) or planned.buffers[index - 1].size < size:
            raise RunError(
                f"the caller does not provide memory of {size} bytes for planned buffer {index}", where=where
            )
        given = devices[index - 1] if devices else Device()
        if given != device:
            raise RunError(
                f"planned buffer {index} must be on {device}, but the caller's memory is on {given}", where=where
            )
        span = planned.buffers[index - 1]
        allocator = registry.get(device.type)
        if size:
            allocator.find(span.address, size, device.index)
        found[device, index] = Memory(device, span.address, size, allocator=allocator)
    return found


def buffer_error(
    what: str, index: int, device: Device, size: int, registry: Registry, cause: EtdevError
) -> PlannedBufferError:
    """Return the error for a planned buffer that cannot be used; it includes the free memory of the buffer's device.

    ``what`` is the first part of the error's message.
    """
    try:
        info = registry.get(device.type).memory_info(device.index)
    except EtdevError:
        info = None
    return PlannedBufferError(what, index, device, size, info.free if info else None, cause)
