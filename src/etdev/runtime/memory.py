"""Memory of a method: buffers with one owner each, and the manager that provides them.

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
    """Range of memory. It does not own the memory."""

    address: int
    size: int
    """Bytes."""


class DeviceMemoryBuffer(MoveOnly):
    """Single owner of one allocation. It cannot be copied or pickled. A context manager.

    It frees the allocation exactly once: when it is closed, or at the latest when it is garbage. An empty buffer owns
    nothing.
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
        """Allocate through the registry. A size of 0 allocates nothing, but the allocator must exist."""
        allocator = registry.get(device_type)
        return cls(allocator, allocator.allocate(size, index, alignment) if size else 0, size, index)

    @property
    def allocator(self) -> DeviceAllocator | None:
        """Allocator of the memory; ``None`` if the buffer was not created by one."""
        return self._allocator

    def data(self) -> int:
        """Return the address; 0 if it is empty or closed."""
        return self._address

    def size(self) -> int:
        """Return the bytes; 0 if it is empty or closed."""
        return self._size

    def as_span(self) -> Span:
        """Return the memory for a :class:`HierarchicalAllocator`."""
        return Span(self._address, self._size)

    def close(self) -> None:
        """Free the memory. A second call has no effect."""
        self._address = self._size = 0
        if self._free is not None:
            self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HierarchicalAllocator:
    """Planned buffers, numbered from 0. It computes addresses and never accesses the memory."""

    def __init__(self, buffers: Sequence[Span], planned_buffer_devices: Sequence[Device] = ()) -> None:
        if planned_buffer_devices and len(planned_buffer_devices) != len(buffers):
            raise UsageError(f"{len(planned_buffer_devices)} devices for {len(buffers)} planned buffers")
        self.buffers = tuple(buffers)
        self._devices = tuple(planned_buffer_devices)

    def get_offset_address(self, memory_id: int, offset: int, size: int) -> int:
        """Return the address of ``size`` bytes from ``offset`` on."""
        if not 0 <= memory_id < len(self.buffers):
            raise UsageError(
                f"there is no planned buffer {memory_id}", hint=f"there are {len(self.buffers)}, from 0 on"
            )
        buffer = self.buffers[memory_id]
        if offset < 0 or size < 0 or offset + size > buffer.size:
            raise DeviceMemoryError(
                f"bytes {offset} to {offset + size} are outside planned buffer {memory_id}, "
                f"which has {buffer.size} bytes"
            )
        return buffer.address + offset

    def planned_buffer_devices(self) -> tuple[Device, ...]:
        """Return the device of each buffer. Empty if no devices were given: all buffers are on the host then."""
        return self._devices


class MemoryManager:
    """Memory that a method is loaded with. Without it, a method allocates its own."""

    def __init__(self, planned_memory: HierarchicalAllocator | None = None) -> None:
        self._planned = planned_memory

    def planned_memory(self) -> HierarchicalAllocator | None:
        """Return the planned buffers."""
        return self._planned

    def planned_buffer_devices(self) -> tuple[Device, ...]:
        """Return the device of each planned buffer; empty for a program on the host alone."""
        return self._planned.planned_buffer_devices() if self._planned else ()

    def has_device_memory(self) -> bool:
        """Return whether it has devices for its buffers."""
        return bool(self.planned_buffer_devices())
