"""Interface of device allocators, and a registry with one allocator for each device type.

The interface is that of ``DeviceAllocator`` and ``DeviceAllocatorRegistry`` in ExecuTorch's
``runtime/core/device_allocator.h``. A public method checks its arguments and counts the operation. Then it calls the
private method of the same name, which subclasses implement.

An address is valid only on its own device. All sizes are in bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any

from etdev.devices import Device, DeviceType
from etdev.errors import UsageError
from etdev.runtime.errors import DeviceMemoryError, NoAllocatorError, OutOfDeviceMemoryError, count_bytes
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.owners import MoveOnly

if TYPE_CHECKING:
    import torch

DEFAULT_ALIGNMENT = 16
"""Default alignment of an allocation, equal to ExecuTorch's ``MemoryAllocator::kDefaultAlignment``."""


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Sizes of the free memory and of the total memory of one device, in bytes."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class PointerAttributes:
    """Properties of an address, as the device's driver reports them."""

    device: Device
    """Device that contains the address, with the index that programs use for the device."""
    kind: str
    """Kind of memory: ``device``, ``host`` or ``managed``."""
    source: str
    """Source of the properties: ``cuda-bindings``, ``libcudart``, ``torch``, ``simulated`` or ``host``."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that is allocated and not yet freed."""

    address: int
    size: int
    index: int
    """Index of the device, counted among the devices of its type."""

    @property
    def end(self) -> int:
        """Address of the first byte after the allocation."""
        return self.address + self.size


@dataclass(slots=True)
class Counters:
    """Statistics of an allocator: numbers of operations, copied bytes, and current and peak allocated bytes."""

    allocations: int = 0
    frees: int = 0
    host_to_device_copies: int = 0
    host_to_device_bytes: int = 0
    device_to_host_copies: int = 0
    device_to_host_bytes: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0

    @property
    def live_allocations(self) -> int:
        """Number of allocations that have not been freed."""
        return self.allocations - self.frees


class DeviceAllocator(MoveOnly, ABC):
    """Allocator of all devices of one type, with thread-safe methods."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._starts: list[int] = []
        """Addresses of allocations that have not been freed, in ascending order."""
        self._live: dict[int, Allocation] = {}
        self._buffers: dict[tuple[int, int], Allocation] = {}
        """Maps ``(memory_id, device index)`` to the planned buffer that :meth:`init_buffer` allocated."""
        self.counters = Counters()

    # Implemented by each type of device

    @property
    @abstractmethod
    def device_type(self) -> DeviceType:
        """Type of this allocator's devices."""

    @abstractmethod
    def device_count(self) -> int:
        """Return the number of devices of this type."""

    @abstractmethod
    def memory_info(self, index: int = 0) -> MemoryInfo | None:
        """Return the free and total memory of a device; None if unknown."""

    @abstractmethod
    def _allocate(self, nbytes: int, index: int, alignment: int) -> int: ...

    @abstractmethod
    def _deallocate(self, allocation: Allocation) -> None: ...

    @abstractmethod
    def _copy_host_to_device(self, dst_address: int, source: memoryview, index: int) -> None: ...

    @abstractmethod
    def _copy_device_to_host(self, target: memoryview, src_address: int, index: int) -> None: ...

    @abstractmethod
    def _pointer_attributes(self, address: int) -> PointerAttributes: ...

    @abstractmethod
    def _device_tensor(self, address: int, nbytes: int) -> torch.Tensor: ...

    # Public interface, as in ExecuTorch

    def allocate(self, nbytes: int, index: int = 0, alignment: int = DEFAULT_ALIGNMENT) -> int:
        """Allocate memory on a device and return its address, a multiple of ``alignment``.

        ``alignment`` must be a power of two. Raises :class:`~etdev.runtime.errors.OutOfDeviceMemoryError` if the device
        has too little free memory.
        """
        self._check_index(index)
        if nbytes <= 0:
            raise UsageError(f"cannot allocate {nbytes} bytes on {self._device(index)}: the size must be positive")
        if alignment < 1 or alignment & (alignment - 1):
            raise UsageError(f"an alignment of {alignment} bytes is not a power of two")
        with self._lock:
            info = self.memory_info(index)
            if info is not None and nbytes > info.free:
                raise OutOfDeviceMemoryError(self._device(index), nbytes, info.free)
            allocation = Allocation(self._allocate(nbytes, index, alignment), nbytes, index)
            self._enter(allocation)
            problem = self._flaw(allocation, alignment)
            if problem:
                self.deallocate(allocation.address, index)
                free = count_bytes(None if info is None else info.free)
                raise DeviceMemoryError(f"{problem}; {self._device(index)} has {free} free")
        return allocation.address

    def deallocate(self, address: int, index: int = 0) -> None:
        """Free the allocation that begins at an address; raise an error if there is no such allocation."""
        with self._lock:
            allocation = self._live.get(address)
            if allocation is None or allocation.index != index:
                raise DeviceMemoryError(
                    f"cannot free {address:#x}: it is not the address of an allocation on {self._device(index)}"
                )
            del self._live[address]
            self._starts.remove(address)
            self.counters.frees += 1
            self.counters.live_bytes -= allocation.size
            self._deallocate(allocation)

    def copy_host_to_device(self, dst_address: int, src: Any, nbytes: int, index: int = 0) -> None:
        """Copy ``nbytes`` from the start of ``src``, a buffer or a contiguous CPU tensor, to a device."""
        source = self._host_part(src, nbytes, index, writable=False)
        self._check_index(index)
        with self._lock:
            if nbytes:  # No bytes have no address.
                self.find(dst_address, nbytes, index)
                self._copy_host_to_device(dst_address, source, index)
            self.counters.host_to_device_copies += 1
            self.counters.host_to_device_bytes += nbytes

    def copy_device_to_host(self, dst: Any, src_address: int, nbytes: int, index: int = 0) -> None:
        """Copy ``nbytes`` from a device to the start of ``dst``, a writable buffer or a contiguous CPU tensor."""
        target = self._host_part(dst, nbytes, index, writable=True)
        self._check_index(index)
        with self._lock:
            if nbytes:  # No bytes have no address.
                self.find(src_address, nbytes, index)
                self._copy_device_to_host(target, src_address, index)
            self.counters.device_to_host_copies += 1
            self.counters.device_to_host_bytes += nbytes

    def init_buffer(self, memory_id: int, size: int, index: int = 0) -> None:
        """Allocate the planned buffer ``memory_id`` on a device; raise an error if the buffer already exists."""
        if (memory_id, index) in self._buffers:
            raise UsageError(f"planned buffer {memory_id} on {self._device(index)} already exists")
        address = self.allocate(size, index) if size else 0
        self._buffers[memory_id, index] = Allocation(address, size, index)

    def get_offset_address(self, memory_id: int, offset: int, size: int, index: int = 0) -> int:
        """Return the address of ``size`` bytes at ``offset`` in a planned buffer that :meth:`init_buffer` allocated."""
        buffer = self._buffers.get((memory_id, index))
        if buffer is None:
            raise UsageError(
                f"no planned buffer {memory_id} is allocated on {self._device(index)}",
                hint="allocate it with `init_buffer`",
            )
        if offset < 0 or size < 0 or offset + size > buffer.size:
            raise DeviceMemoryError(
                f"bytes {offset} to {offset + size} are out of bounds: planned buffer {memory_id} on "
                f"{self._device(index)} has {buffer.size} bytes"
            )
        return buffer.address + offset

    def release_buffer(self, memory_id: int, index: int = 0) -> None:
        """Free a planned buffer that :meth:`init_buffer` allocated."""
        buffer = self._buffers.pop((memory_id, index), None)
        if buffer is None:
            raise UsageError(f"no planned buffer {memory_id} is allocated on {self._device(index)}")
        if buffer.size:
            self.deallocate(buffer.address, index)

    # Inspection

    def pointer_attributes(self, address: int) -> PointerAttributes:
        """Return the driver's information about an address in an allocation."""
        return self._pointer_attributes(address)

    def device_tensor(self, address: int, nbytes: int, index: int = 0) -> torch.Tensor:
        """Return device memory as a ``uint8`` tensor on that device, without a copy.

        Only code that runs on the device may use the tensor. Host code must copy the memory instead. No bytes have no
        address: their tensor is empty.
        """
        if not nbytes:
            return self._empty_tensor(index)
        with self._lock:
            self.find(address, nbytes, index)
            return self._device_tensor(address, nbytes)

    def _empty_tensor(self, index: int) -> torch.Tensor:
        import torch

        self._check_index(index)
        return torch.empty(0, dtype=torch.uint8, device=self.torch_device(index))

    def torch_device(self, index: int = 0) -> str:
        """Return the name of torch's device for a tensor from :meth:`device_tensor`, such as ``cpu``."""
        return "cpu"

    def find(self, address: int, nbytes: int, index: int = 0) -> Allocation:
        """Return the allocation that contains this address range.

        Raises :class:`~etdev.runtime.errors.DeviceMemoryError` if no allocation contains the whole range.
        """
        self._check_index(index)
        with self._lock:
            position = bisect_right(self._starts, address) - 1
            found = self._live[self._starts[position]] if position >= 0 else None
        if found is None or found.index != index or nbytes < 0 or address + nbytes > found.end:
            raise DeviceMemoryError(
                f"bytes {address:#x} to {address + nbytes:#x} are not in one allocation on {self._device(index)}",
                hint="check that the memory is not freed yet, is on this device, and is large enough",
            )
        return found

    def live(self) -> tuple[Allocation, ...]:
        """Return all allocations that have not been freed, sorted by address."""
        with self._lock:
            return tuple(self._live[start] for start in self._starts)

    def _enter(self, allocation: Allocation) -> None:
        insort(self._starts, allocation.address)
        self._live[allocation.address] = allocation
        self.counters.allocations += 1
        self.counters.live_bytes += allocation.size
        self.counters.peak_bytes = max(self.counters.peak_bytes, self.counters.live_bytes)

    def _flaw(self, allocation: Allocation, alignment: int) -> str | None:
        """Return the problem with a new allocation's address or device; None if both are correct."""
        device = self._device(allocation.index)
        if allocation.address % alignment:
            return (
                f"{device} allocated {allocation.size} bytes at {allocation.address:#x}, which is not a multiple of "
                f"{alignment}"
            )
        attributes = self._pointer_attributes(allocation.address)
        if attributes.device != device:
            return (
                f"{allocation.size} bytes were allocated on {attributes.device} instead of {device} "
                f"({attributes.source})"
            )
        return None

    def _host_part(self, memory: Any, nbytes: int, index: int, *, writable: bool) -> memoryview:
        self._check_index(index)
        view = host_bytes(memory, writable=writable)
        if nbytes < 0 or nbytes > len(view):
            raise UsageError(
                f"cannot copy {nbytes} bytes between {self._device(index)} and host memory of {len(view)} bytes"
            )
        return view[:nbytes]

    def _check_index(self, index: int) -> None:
        count = self.device_count()
        if not 0 <= index < count:
            name = self.device_type.name.lower()
            raise DeviceMemoryError(
                f"there is no device {name}:{index}",
                hint=f"use an index from 0 to {count - 1}"
                if count
                else f"choose another device: this machine has no {name} devices",
            )

    def _device(self, index: int) -> Device:
        return Device(self.device_type, index)


class DistantAllocator(DeviceAllocator):
    """Allocator of devices whose memory torch cannot access in this process, such as the memory of workers."""

    @abstractmethod
    def fill(self, address: int, nbytes: int, pattern: bytes, index: int) -> None:
        """Fill device memory with a repeated pattern; the last repetition may be incomplete."""

    @abstractmethod
    def copy_on_device(self, dst_address: int, src_address: int, nbytes: int, index: int) -> None:
        """Copy between two ranges on one device; the ranges must not overlap."""


class Registry:
    """Registry of allocators, at most one for each type of device."""

    def __init__(self, *allocators: DeviceAllocator) -> None:
        self._allocators: dict[DeviceType, DeviceAllocator] = {}
        for allocator in allocators:
            self.register(allocator)

    def register(self, allocator: DeviceAllocator) -> None:
        """Add an allocator; raise an error if its device type already has an allocator."""
        kind = allocator.device_type
        if kind in self._allocators:
            raise UsageError(
                f"{kind.name} already has an allocator",
                hint="unregister that allocator before you register another",
            )
        self._allocators[kind] = allocator

    def unregister(self, kind: DeviceType) -> DeviceAllocator:
        """Remove and return the allocator of a device type."""
        allocator = self.get(kind)
        del self._allocators[kind]
        return allocator

    def get(self, kind: DeviceType) -> DeviceAllocator:
        """Return the allocator of a device type.

        Raises :class:`~etdev.runtime.errors.NoAllocatorError` if the type has no allocator.
        """
        if kind not in self._allocators:
            there = ", ".join(sorted(known.name for known in self._allocators)) or "none"
            raise NoAllocatorError(
                f"there is no allocator for {kind.name} devices (allocators: {there})",
                hint=f"simulate these devices: `--device-map {kind.name.lower()}:0=sim`",
            )
        return self._allocators[kind]

    def types(self) -> tuple[DeviceType, ...]:
        """Return the device types that have an allocator, in ascending order."""
        return tuple(sorted(self._allocators))

    @contextmanager
    def replaced(self, *allocators: DeviceAllocator) -> Iterator[Registry]:
        """In the block, use these allocators for their device types. Restore the previous allocators at the end."""
        before = dict(self._allocators)
        self._allocators.update({allocator.device_type: allocator for allocator in allocators})
        try:
            yield self
        finally:
            self._allocators = before


DEFAULT_REGISTRY = Registry()
"""Registry of this process; importing :mod:`etdev.runtime.host` adds the host's allocator."""


def register_device_allocator(allocator: DeviceAllocator) -> None:
    """Add an allocator to the process's registry; raise an error if its device type already has an allocator."""
    DEFAULT_REGISTRY.register(allocator)


def get_device_allocator(kind: DeviceType) -> DeviceAllocator:
    """Return the allocator for a device type from the process's registry."""
    return DEFAULT_REGISTRY.get(kind)
