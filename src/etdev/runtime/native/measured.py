"""Figures that the native runtime measures: memory and time of a method."""

from __future__ import annotations

from dataclasses import dataclass

from etdev.devices import Device


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Allocations and copies on a device since the program was loaded."""

    allocations: int
    allocated_bytes: int
    live_allocations: int
    """Number of allocations that are not freed."""
    live_bytes: int
    copies_in: int
    """Number of copies from the host to the device."""
    bytes_in: int
    copies_out: int
    """Number of copies from the device to the host."""
    bytes_out: int


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """A planned buffer that the runtime has allocated."""

    device: Device
    size: int
    """Size in bytes."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Memory of a method after it was loaded."""

    buffers: tuple[PlannedBuffer, ...]
    """Planned buffers in the order of their memory ids, which start at 1."""
    method_pool: int
    """Bytes in use in the method pool: values, tensors, and memory that delegates allocate there."""
    heap: int
    """Heap bytes that remain allocated after loading, such as packed weights of delegates."""
    heap_peak: int
    """Largest number of heap bytes in use at once during loading, minus the number before loading."""


@dataclass(frozen=True, slots=True)
class Called:
    """Time and memory of the calls of one request."""

    seconds: tuple[float, ...]
    """Duration of each call in seconds, without time spent in Python."""
    method_pool: int
    """Largest number of bytes in use in the method pool, up to the end of these calls."""
    temporary_pool: int
    """Largest number of bytes in use at once in the temporary pool, in these and earlier calls."""
    heap: int
    """Heap bytes that the calls allocated and did not free."""
    heap_peak: int
    """Largest number of heap bytes in use at once during the calls, minus the number before the first call."""
    damages: tuple[str, ...]
    """One message for each buffer whose surrounding bytes were overwritten. The message names the buffer."""
    devices: dict[Device, DeviceCounts]


@dataclass(frozen=True, slots=True)
class Left:
    """Memory that is still allocated after a program was unloaded."""

    heap: int
    """Heap bytes that are still allocated; libraries may reuse some of them for the next program."""
    devices: dict[Device, DeviceCounts]
