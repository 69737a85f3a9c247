"""Device memory: the interface of an allocator, and the registry with one allocator for each type of device.

The contract is that of ``DeviceAllocator`` and ``DeviceAllocatorRegistry`` in ExecuTorch's
``runtime/core/device_allocator.h``. A public method checks its arguments and keeps the accounts. It then calls the hook
with an underscore, which a device overrides.

An address is meaningful only to its device. All sizes are in bytes.
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
"""Default alignment of an address: ``MemoryAllocator::kDefaultAlignment``."""


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Memory of one device."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class PointerAttributes:
    """Attributes of an address according to a device's driver."""

    device: Device
    """Device of the memory, numbered as in programs."""
    kind: str
    """``device``, ``host`` or ``managed``."""
    source: str
    """Source of the attributes: ``cuda-bindings``, ``libcudart``, ``torch``, ``simulated``, ``host``."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that is allocated and not freed yet."""

    address: int
    size: int
    index: int
    """Index of the device."""

    @property
    def end(self) -> int:
        """End address (exclusive)."""
        return self.address + self.size


@dataclass(slots=True)
class Counters:
    """Operations of an allocator so far."""

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
        """Number of allocations that are not freed yet."""
        return self.allocations - self.frees


class DeviceAllocator(MoveOnly, ABC):
    """Memory of all devices of one type. Thread-safe."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._starts: list[int] = []
        """Addresses of live allocations, sorted."""
        self._live: dict[int, Allocation] = {}
        self._buffers: dict[tuple[int, int], Allocation] = {}
        """``(memory_id, index)`` → the buffer of :meth:`init_buffer`."""
        self.counters = Counters()

    # Overridden by devices

    @property
    @abstractmethod
    def device_type(self) -> DeviceType:
        """Type of its devices."""

    @abstractmethod
    def device_count(self) -> int:
        """Return the number of devices of that type."""

    @abstractmethod
    def memory_info(self, index: int = 0) -> MemoryInfo | None:
        """Return the free and total memory of a device, or ``None`` if unknown."""

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

    # ExecuTorch's contract

    def allocate(self, nbytes: int, index: int = 0, alignment: int = DEFAULT_ALIGNMENT) -> int:
        """Allocate memory and return its address, a multiple of ``alignment``, which is a power of two.

        Raises :class:`~etdev.runtime.errors.OutOfDeviceMemoryError` if there is not enough.
        """
        self._check_index(index)
        if nbytes <= 0:
            raise UsageError(f"an allocation of {nbytes} bytes on {self._device(index)}")
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
        """Free memory from :meth:`allocate`, once."""
        with self._lock:
            allocation = self._live.get(address)
            if allocation is None or allocation.index != index:
                raise DeviceMemoryError(
                    f"{address:#x} is not a live allocation on {self._device(index)}, so it is not freed"
                )
            del self._live[address]
            self._starts.remove(address)
            self.counters.frees += 1
            self.counters.live_bytes -= allocation.size
            self._deallocate(allocation)

    def copy_host_to_device(self, dst_address: int, src: Any, nbytes: int, index: int = 0) -> None:
        """Copy the first ``nbytes`` of host memory to the device. ``src`` is a buffer or a contiguous CPU tensor."""
        source = self._host_part(src, nbytes, index, writable=False)
        with self._lock:
            self.find(dst_address, nbytes, index)
            if nbytes:
                self._copy_host_to_device(dst_address, source, index)
            self.counters.host_to_device_copies += 1
            self.counters.host_to_device_bytes += nbytes

    def copy_device_to_host(self, dst: Any, src_address: int, nbytes: int, index: int = 0) -> None:
        """Copy ``nbytes`` of the device to the beginning of writable host memory."""
        target = self._host_part(dst, nbytes, index, writable=True)
        with self._lock:
            self.find(src_address, nbytes, index)
            if nbytes:
                self._copy_device_to_host(target, src_address, index)
            self.counters.device_to_host_copies += 1
            self.counters.device_to_host_bytes += nbytes

    def init_buffer(self, memory_id: int, size: int, index: int = 0) -> None:
        """Allocate the planned buffer with that number on a device. Each number exists once until it is released."""
        if (memory_id, index) in self._buffers:
            raise UsageError(f"planned buffer {memory_id} on {self._device(index)} exists already")
        address = self.allocate(size, index) if size else 0
        self._buffers[memory_id, index] = Allocation(address, size, index)

    def get_offset_address(self, memory_id: int, offset: int, size: int, index: int = 0) -> int:
        """Return the address of ``size`` bytes from ``offset`` on, in a buffer of :meth:`init_buffer`."""
        buffer = self._buffers.get((memory_id, index))
        if buffer is None:
            raise UsageError(
                f"there is no planned buffer {memory_id} on {self._device(index)}", hint="call `init_buffer`"
            )
        if offset < 0 or size < 0 or offset + size > buffer.size:
            raise DeviceMemoryError(
                f"bytes {offset} to {offset + size} of planned buffer {memory_id} on {self._device(index)}, which has "
                f"{buffer.size}"
            )
        return buffer.address + offset

    def release_buffer(self, memory_id: int, index: int = 0) -> None:
        """Free a buffer of :meth:`init_buffer`."""
        buffer = self._buffers.pop((memory_id, index), None)
        if buffer is None:
            raise UsageError(f"there is no planned buffer {memory_id} on {self._device(index)}")
        if buffer.size:
            self.deallocate(buffer.address, index)

    # Inspection

    def pointer_attributes(self, address: int) -> PointerAttributes:
        """Return the driver's attributes of an address in a live allocation."""
        return self._pointer_attributes(address)

    def device_tensor(self, address: int, nbytes: int, index: int = 0) -> torch.Tensor:
        """Return bytes of the device as a ``uint8`` tensor there, for code that *runs on the device*.

        Host code must copy instead.
        """
        with self._lock:
            self.find(address, nbytes, index)
            return self._device_tensor(address, nbytes)

    def torch_device(self, index: int = 0) -> str:
        """Return the torch device of the tensors from :meth:`device_tensor`."""
        return "cpu"

    def find(self, address: int, nbytes: int, index: int = 0) -> Allocation:
        """Return the live allocation that contains all of these bytes.

        Raises :class:`~etdev.runtime.errors.DeviceMemoryError` if there is none.
        """
        self._check_index(index)
        with self._lock:
            position = bisect_right(self._starts, address) - 1
            found = self._live[self._starts[position]] if position >= 0 else None
        if found is None or found.index != index or nbytes < 0 or address + nbytes > found.end:
            raise DeviceMemoryError(
                f"bytes {address:#x} to {address + nbytes:#x} are in no live allocation on {self._device(index)}",
                hint="they were freed, are on another device, or reach beyond the end",
            )
        return found

    def live(self) -> tuple[Allocation, ...]:
        """Return all live allocations, by address."""
        with self._lock:
            return tuple(self._live[start] for start in self._starts)

    def _enter(self, allocation: Allocation) -> None:
        insort(self._starts, allocation.address)
        self._live[allocation.address] = allocation
        self.counters.allocations += 1
        self.counters.live_bytes += allocation.size
        self.counters.peak_bytes = max(self.counters.peak_bytes, self.counters.live_bytes)

    def _flaw(self, allocation: Allocation, alignment: int) -> str | None:
        """Return a description of an invalid new allocation, or None."""
        device = self._device(allocation.index)
        if allocation.address % alignment:
            return (
                f"{allocation.size} bytes were asked of {device}, and the address that it gave, "
                f"{allocation.address:#x}, is not a multiple of {alignment}"
            )
        attributes = self._pointer_attributes(allocation.address)
        if attributes.device != device:
            return (
                f"{allocation.size} bytes were asked of {device}, and are on {attributes.device} ({attributes.source})"
            )
        return None

    def _host_part(self, memory: Any, nbytes: int, index: int, *, writable: bool) -> memoryview:
        self._check_index(index)
        view = host_bytes(memory, writable=writable)
        if nbytes < 0 or nbytes > len(view):
            raise UsageError(
                f"a copy of {nbytes} bytes with {self._device(index)}, of host memory that has {len(view)}"
            )
        return view[:nbytes]

    def _check_index(self, index: int) -> None:
        count = self.device_count()
        if not 0 <= index < count:
            name = self.device_type.name.lower()
            raise DeviceMemoryError(
                f"there is no device {name}:{index}", hint=f"there are {count} devices of that type, numbered from 0"
            )

    def _device(self, index: int) -> Device:
        return Device(self.device_type, index)


class DistantAllocator(DeviceAllocator):
    """Memory of devices that no tensor of this process can refer to. Such devices fill and copy on request."""

    @abstractmethod
    def fill(self, address: int, nbytes: int, pattern: bytes, index: int) -> None:
        """Fill memory of the device with a repeated pattern. The last repetition may be incomplete."""

    @abstractmethod
    def copy_on_device(self, dst_address: int, src_address: int, nbytes: int, index: int) -> None:
        """Copy between two ranges of a device that do not overlap."""


class Registry:
    """Registry with one allocator for each type of device."""

    def __init__(self, *allocators: DeviceAllocator) -> None:
        self._allocators: dict[DeviceType, DeviceAllocator] = {}
        for allocator in allocators:
            self.register(allocator)

    def register(self, allocator: DeviceAllocator) -> None:
        """Add the allocator of a type that has none."""
        kind = allocator.device_type
        if kind in self._allocators:
            raise UsageError(
                f"an allocator for {kind.name} is registered already",
                hint="a type of device has one allocator; unregister the other first",
            )
        self._allocators[kind] = allocator

    def unregister(self, kind: DeviceType) -> DeviceAllocator:
        """Remove and return the allocator of a type."""
        allocator = self.get(kind)
        del self._allocators[kind]
        return allocator

    def get(self, kind: DeviceType) -> DeviceAllocator:
        """Return the allocator of a type. Raises :class:`~etdev.runtime.errors.NoAllocatorError` if there is none."""
        if kind not in self._allocators:
            there = ", ".join(sorted(known.name for known in self._allocators)) or "none"
            raise NoAllocatorError(
                f"nothing allocates memory on {kind.name} devices here (registered: {there})",
                hint=f"map its devices to simulated ones: `--device-map {kind.name.lower()}:0=sim`",
            )
        return self._allocators[kind]

    def types(self) -> tuple[DeviceType, ...]:
        """Return the types that have an allocator."""
        return tuple(sorted(self._allocators))

    @contextmanager
    def replaced(self, *allocators: DeviceAllocator) -> Iterator[Registry]:
        """Use these allocators for their types in the block."""
        before = dict(self._allocators)
        self._allocators.update({allocator.device_type: allocator for allocator in allocators})
        try:
            yield self
        finally:
            self._allocators = before


DEFAULT_REGISTRY = Registry()
"""Registry of the process. Importing :mod:`etdev.runtime.host` adds the host's allocator."""


def register_device_allocator(allocator: DeviceAllocator) -> None:
    """Add an allocator to the process's registry. Raises an error if its type has one."""
    DEFAULT_REGISTRY.register(allocator)


def get_device_allocator(kind: DeviceType) -> DeviceAllocator:
    """Return the allocator of the process's registry for a type of device."""
    return DEFAULT_REGISTRY.get(kind)
