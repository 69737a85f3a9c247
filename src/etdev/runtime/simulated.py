"""Simulated devices, which replace hardware that this machine lacks.

Addresses in their memory are not pointers, so host code can access this memory only by copies. Code that acts as the
device uses :meth:`SimulatedDevice.device_view`. A simulated device has a configurable size, and tests can make it fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from etdev.devices import Device, DeviceType
from etdev.runtime.allocator import Allocation, DeviceAllocator, MemoryInfo, PointerAttributes
from etdev.runtime.errors import DeviceCopyError, OutOfDeviceMemoryError

if TYPE_CHECKING:
    import torch

Operation = Literal["allocate", "copy_host_to_device", "copy_device_to_host", "wrong_device"]

_BASE = 1 << 60
"""First address, which is greater than every pointer in a process."""
_SPACE = 1 << 48
"""Number of addresses for each device."""
_GAP = 4096
"""Number of unused addresses after each allocation, so that an overrun does not reach another allocation."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A simulated failure of the ``nth`` operation of a kind, counted from 1.

    With ``lasting``, all later operations of this kind fail, too. The operation ``wrong_device`` is an allocation that
    returns memory of the next device.
    """

    operation: Operation
    nth: int = 1
    lasting: bool = False


class SimulatedDevice(DeviceAllocator):
    """Allocator of simulated devices of one type.

    There are ``count`` devices with ``capacity`` bytes each. Addresses are multiples of ``alignment``.
    """

    def __init__(
        self,
        device_type: DeviceType = DeviceType.CUDA,
        *,
        count: int = 1,
        capacity: int = 1 << 32,
        alignment: int = 256,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__()
        self._type, self._count, self._capacity, self._alignment = device_type, count, capacity, alignment
        self._faults = tuple(faults)
        self._done: dict[str, int] = {}
        """Maps an operation to the number of its calls so far."""
        self._next = [_BASE + index * _SPACE for index in range(count)]
        """Next unused address of each device. Freed addresses are not reused, so late accesses raise errors."""
        self._memory: dict[int, bytearray] = {}

    @property
    def device_type(self) -> DeviceType:
        """Type of the simulated devices."""
        return self._type

    def device_count(self) -> int:
        """Return the number of simulated devices."""
        return self._count

    def memory_info(self, index: int = 0) -> MemoryInfo:
        """Return the free and the total capacity of a device."""
        self._check_index(index)
        used = sum(allocation.size for allocation in self.live() if allocation.index == index)
        return MemoryInfo(self._capacity - used, self._capacity)

    def device_view(self, address: int, nbytes: int, index: int = 0) -> memoryview:
        """Return a view of a device's memory, for code that acts as the device. Host code must copy instead."""
        allocation = self.find(address, nbytes, index)
        start = address - allocation.address
        return memoryview(self._memory[allocation.address])[start : start + nbytes]

    def operations(self, operation: Operation) -> int:
        """Return the number of calls of an operation, including failed calls."""
        return self._done.get(operation, 0)

    def _fails(self, operation: Operation) -> bool:
        self._done[operation] = done = self._done.get(operation, 0) + 1
        return any(
            fault.operation == operation and (done == fault.nth or (fault.lasting and done > fault.nth))
            for fault in self._faults
        )

    def _allocate(self, nbytes: int, index: int, alignment: int) -> int:
        if self._fails("allocate"):
            free = self.memory_info(index).free
            raise OutOfDeviceMemoryError(self._device(index), nbytes, free, cause="a simulated fault")
        alignment = max(alignment, self._alignment)
        place = (index + 1) % max(self._count, 2) if self._fails("wrong_device") else index
        if place >= self._count:
            return self._take(_BASE + place * _SPACE, nbytes, alignment)
        address = self._take(self._next[place], nbytes, alignment)
        self._next[place] = address + nbytes + _GAP
        return address

    def _take(self, start: int, nbytes: int, alignment: int) -> int:
        address = -(-start // alignment) * alignment
        self._memory[address] = bytearray(nbytes)
        return address

    def _deallocate(self, allocation: Allocation) -> None:
        del self._memory[allocation.address]

    def _copy_host_to_device(self, dst_address: int, source: memoryview, index: int) -> None:
        self._may_copy("copy_host_to_device", len(source), index)
        self.device_view(dst_address, len(source), index)[:] = source

    def _copy_device_to_host(self, target: memoryview, src_address: int, index: int) -> None:
        self._may_copy("copy_device_to_host", len(target), index)
        target[:] = self.device_view(src_address, len(target), index)

    def _may_copy(self, operation: Operation, nbytes: int, index: int) -> None:
        if self._fails(operation):
            device, free = self._device(index), self.memory_info(index).free
            raise DeviceCopyError(
                f"{operation} of {nbytes} bytes failed on {device} ({free} bytes free): a simulated fault"
            )

    def _pointer_attributes(self, address: int) -> PointerAttributes:
        return PointerAttributes(Device(self._type, (address - _BASE) // _SPACE), "device", "simulated")

    def _device_tensor(self, address: int, nbytes: int) -> torch.Tensor:
        import torch

        if not nbytes:
            return torch.empty(0, dtype=torch.uint8)
        index = (address - _BASE) // _SPACE
        return torch.frombuffer(self.device_view(address, nbytes, index), dtype=torch.uint8)
