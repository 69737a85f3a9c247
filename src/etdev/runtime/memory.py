"""Memory that a method runs in: buffers with one owner each, and the manager that hands them out.

The contract is that of ExecuTorch's ``DeviceMemoryBuffer``, ``HierarchicalAllocator`` and ``MemoryManager``.
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
    """A stretch of memory. Nobody who has one owns it."""

    address: int
    size: int
    """Bytes."""


class DeviceMemoryBuffer(MoveOnly):
    """The single owner of one allocation, which it frees exactly once: when it is closed, or at the latest when nothing
    refers to it any more. It cannot be copied or pickled. An empty one owns nothing. A context manager.
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
        """Allocate through the registry. Of no bytes, nothing is allocated, but there has to be an allocator."""
        allocator = registry.get(device_type)
        return cls(allocator, allocator.allocate(size, index, alignment) if size else 0, size, index)

    @property
    def allocator(self) -> DeviceAllocator | None:
        """Who gave the memory; ``None`` of one that was never created."""
        return self._allocator

    def data(self) -> int:
        """The address; 0 if it is empty or closed."""
        return self._address

    def size(self) -> int:
        """Bytes; 0 if it is empty or closed."""
        return self._size

    def as_span(self) -> Span:
        """The memory, for a :class:`HierarchicalAllocator`."""
        return Span(self._address, self._size)

    def close(self) -> None:
        """Free the memory. A second time does nothing."""
        self._address = self._size = 0
        if self._free is not None:
            self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HierarchicalAllocator:
    """Planned buffers by number, from 0 on. It computes addresses, and never looks at what is there."""

    def __init__(self, buffers: Sequence[Span], planned_buffer_devices: Sequence[Device] = ()) -> None:
        if planned_buffer_devices and len(planned_buffer_devices) != len(buffers):
            raise UsageError(f"{len(planned_buffer_devices)} devices for {len(buffers)} planned buffers")
        self.buffers = tuple(buffers)
        self._devices = tuple(planned_buffer_devices)

    def get_offset_address(self, memory_id: int, offset: int, size: int) -> int:
        """The address of ``size`` bytes from ``offset`` on."""
        if not 0 <= memory_id < len(self.buffers):
            raise UsageError(
                f"there is no planned buffer {memory_id}", hint=f"there are {len(self.buffers)}, from 0 on"
            )
        buffer = self.buffers[memory_id]
        if offset < 0 or size < 0 or offset + size > buffer.size:
            raise DeviceMemoryError(
                f"bytes {offset} to {offset + size} of planned buffer {memory_id}, which has {buffer.size}"
            )
        return buffer.address + offset

    def planned_buffer_devices(self) -> tuple[Device, ...]:
        """Of each buffer; empty if nothing was said of devices: then all are on the host."""
        return self._devices


class MemoryManager:
    """The memory that a method is loaded with. Without it, a method allocates its own."""

    def __init__(self, planned_memory: HierarchicalAllocator | None = None) -> None:
        self._planned = planned_memory

    def planned_memory(self) -> HierarchicalAllocator | None:
        """The planned buffers."""
        return self._planned

    def planned_buffer_devices(self) -> tuple[Device, ...]:
        """Of each planned buffer; empty for a program of the host alone."""
        return self._planned.planned_buffer_devices() if self._planned else ()

    def has_device_memory(self) -> bool:
        """Does it say on which devices its buffers are?"""
        return bool(self.planned_buffer_devices())
