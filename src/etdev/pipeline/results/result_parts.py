"""Small parts of results, in a module without dependencies on the checks that fill them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AllocatedBuffer:
    """One planned buffer, and the memory test in it."""

    device: str
    index: int
    """The ``memory_id``."""
    size: int
    """Bytes."""
    alignment: int
    """Largest power of two that divides its address."""
    memory: str
    """Kind of memory at its address, and the source of that fact: ``device (libcudart)``."""
    extents: int
    """Number of extents, over all methods, written and read back while others were in use."""
    written: int
    """Bytes written to the extents."""
    seconds: float


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of a device before, during and after the check."""

    device: str
    free_before: int | None
    """Free bytes; None if the device does not report it."""
    free_during: int | None
    """Free bytes with all buffers allocated."""
    free_after: int | None
    total: int | None
