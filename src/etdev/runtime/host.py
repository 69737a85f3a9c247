"""Allocator of host memory, with the same interface as the allocators of devices."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from etdev.devices import HOST, DeviceType
from etdev.runtime.allocator import (
    Allocation,
    DeviceAllocator,
    MemoryInfo,
    PointerAttributes,
    register_device_allocator,
)

if TYPE_CHECKING:
    import torch

HOST_ALIGNMENT = 64
"""Minimum alignment in bytes of every allocation, for vector instructions."""


class HostAllocator(DeviceAllocator):
    """Allocator of memory in this process; addresses are pointers, and new memory is filled with zeros."""

    def __init__(self) -> None:
        super().__init__()
        self._memory: dict[int, bytearray] = {}

    @property
    def device_type(self) -> DeviceType:
        """Type of the host, ``CPU``."""
        return DeviceType.CPU

    def device_count(self) -> int:
        """Return 1, because there is one host."""
        return 1

    def memory_info(self, index: int = 0) -> MemoryInfo | None:
        """Return None, because other processes can also use the free memory of the system."""
        return None

    def device_view(self, address: int, nbytes: int) -> memoryview:
        """Return a writable view of ``nbytes`` bytes at an address in an allocation."""
        allocation = self.find(address, nbytes)
        memory = self._memory[allocation.address]
        start = address - ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return memoryview(memory)[start : start + nbytes]

    def _allocate(self, nbytes: int, index: int, alignment: int) -> int:
        alignment = max(alignment, HOST_ALIGNMENT)
        memory = bytearray(nbytes + alignment - 1)
        address = -(-ctypes.addressof(ctypes.c_char.from_buffer(memory)) // alignment) * alignment
        self._memory[address] = memory
        return address

    def _deallocate(self, allocation: Allocation) -> None:
        del self._memory[allocation.address]

    def _copy_host_to_device(self, dst_address: int, source: memoryview, index: int) -> None:
        self.device_view(dst_address, len(source))[:] = source

    def _copy_device_to_host(self, target: memoryview, src_address: int, index: int) -> None:
        target[:] = self.device_view(src_address, len(target))

    def _pointer_attributes(self, address: int) -> PointerAttributes:
        self.find(address, 0)
        return PointerAttributes(HOST, "host", "host")

    def _device_tensor(self, address: int, nbytes: int) -> torch.Tensor:
        import torch

        return (
            torch.frombuffer(self.device_view(address, nbytes), dtype=torch.uint8) if nbytes else torch.empty(0).byte()
        )


register_device_allocator(HostAllocator())
