"""Figures that the native runtime measures: memory and time of a method."""

from __future__ import annotations

from dataclasses import dataclass

from etdev.devices import Device


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Allocations and copies of a device since the program was loaded."""

    allocations: int
    allocated_bytes: int
    live_allocations: int
    """Allocations that are not freed."""
    live_bytes: int
    copies_in: int
    """Copies from the host to the device."""
    bytes_in: int
    copies_out: int
    """Copies from the device to the host."""
    bytes_out: int


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """Planned buffer as the runtime allocated it."""

    device: Device
    size: int
    """Size in bytes."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Memory of a method after it was loaded."""

    buffers: tuple[PlannedBuffer, ...]
    """Planned buffers, from memory id 1."""
    method_pool: int
    """Bytes of the method allocator in use: values, tensors, and what delegates take from it."""
    heap: int
    """Heap bytes that loading has left allocated, for example packed weights of delegates."""
    heap_peak: int
    """Largest number of heap bytes in use at once during loading."""


@dataclass(frozen=True, slots=True)
class Called:
    """Time and memory of the calls of one request."""

    seconds: tuple[float, ...]
    """Seconds of each call, without Python."""
    method_pool: int
    """Largest number of bytes of the method allocator in use so far."""
    temporary_pool: int
    """Largest number of bytes of the temporary allocator in use at once in calls so far."""
    heap: int
    """Heap bytes that the calls have left allocated."""
    heap_peak: int
    """Largest number of heap bytes in use at once during the calls, above those before."""
    damages: tuple[str, ...]
    """A sentence for each buffer with a write outside of its bytes."""
    devices: dict[Device, DeviceCounts]


@dataclass(frozen=True, slots=True)
class Left:
    """Memory that is still allocated after a program was unloaded."""

    heap: int
    """Heap bytes. Libraries may keep some for the next program."""
    devices: dict[Device, DeviceCounts]
