"""Planned buffers of a method: their owners, their addresses, and the manager that a caller passes to a method.

The interface is that of ExecuTorch's ``DeviceMemoryBuffer``, ``HierarchicalAllocator`` and ``MemoryManager``.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from etdev.devices import HOST, Device, DeviceType
from etdev.errors import UsageError
from etdev.runtime.allocator import DEFAULT_ALIGNMENT, DEFAULT_REGISTRY, DeviceAllocator, Registry
from etdev.runtime.errors import DeviceMemoryError
from etdev.runtime.owners import MoveOnly


@dataclass(frozen=True, slots=True)
class Span:
    """A range of memory that another object owns."""

    address: int
    size: int
    """Number of bytes."""


class DeviceMemoryBuffer(MoveOnly):
    """The owner of one allocation; a context manager.

    The owner frees the allocation exactly once: when the owner is closed or garbage-collected. An empty buffer does not
    own memory.
    """

    def __init__(
        self, allocator: DeviceAllocator | None = None, address: int = 0, size: int = 0, index: int = 0
    ) -> None:
        self._allocator, self._address, self._size = allocator, address, size
        self.device = Device(allocator.device_type, index) if allocator else HOST
        self._free = weakref.finalize(self, allocator.deallocate, address, index) if allocator and size else None

    @classmethod
    def create(
        cls,
        size: int,
        device_type: DeviceType,
        index: int = 0,
        alignment: int = DEFAULT_ALIGNMENT,
        *,
        registry: Registry = DEFAULT_REGISTRY,
    ) -> Self:
        """Allocate memory with the registry's allocator for ``device_type``.

        A size of 0 allocates nothing, but still requires an allocator for the type.
        """
        allocator = registry.get(device_type)
        return cls(allocator, allocator.allocate(size, index, alignment) if size else 0, size, index)

    @property
    def allocator(self) -> DeviceAllocator | None:
        """Allocator of the memory; None if the buffer was created without an allocator."""
        return self._allocator

    def data(self) -> int:
        """Return the address; 0 for an empty or closed buffer."""
        return self._address

    def size(self) -> int:
        """Return the number of bytes; 0 for an empty or closed buffer."""
        return self._size

    def as_span(self) -> Span:
        """Return the address range as an argument for :class:`HierarchicalAllocator`."""
        return Span(self._address, self._size)

    def close(self) -> None:
        """Free the memory; a second call has no effect."""
        self._address = self._size = 0
        if self._free is not None:
            self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HierarchicalAllocator:
    """Planned buffers, numbered from 0; this class computes addresses in the buffers and never accesses the memory."""

    def __init__(self, buffers: Sequence[Span], planned_buffer_devices: Sequence[Device] = ()) -> None:
        if planned_buffer_devices and len(planned_buffer_devices) != len(buffers):
            raise UsageError(f"there are {len(buffers)} planned buffers, but {len(planned_buffer_devices)} devices")
        self.buffers = tuple(buffers)
        self._devices = tuple(planned_buffer_devices)

    def get_offset_address(self, memory_id: int, offset: int, size: int) -> int:
        """Return the address of ``size`` bytes that begin at ``offset`` in a buffer."""
        if not 0 <= memory_id < len(self.buffers):
            raise UsageError(
                f"there is no planned buffer {memory_id}",
                hint=f"use an index of 0 or more and below {len(self.buffers)}",
            )
        buffer = self.buffers[memory_id]
        if offset < 0 or size < 0 or offset + size > buffer.size:
            raise DeviceMemoryError(
                f"bytes {offset} to {offset + size} are out of bounds: "
                f"planned buffer {memory_id} has {buffer.size} bytes"
            )
        return buffer.address + offset

    def planned_buffer_devices(self) -> tuple[Device, ...]:
        """Return the device of each buffer; empty if all buffers are on the host."""
        return self._devices


class MemoryManager:
    """Planned buffers that the caller provides for a method; without them, the method allocates its own buffers."""

    def __init__(self, planned_memory: HierarchicalAllocator | None = None) -> None:
        self._planned = planned_memory

    def planned_memory(self) -> HierarchicalAllocator | None:
        """Return the planned buffers."""
        return self._planned

    def planned_buffer_devices(self) -> tuple[Device, ...]:
        """Return the device of each planned buffer; empty if all buffers are on the host."""
        return self._planned.planned_buffer_devices() if self._planned else ()

    def has_device_memory(self) -> bool:
        """Return True if :meth:`planned_buffer_devices` is not empty."""
        return bool(self.planned_buffer_devices())
