"""Small parts of results. This module does not import the checks that use them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AllocatedBuffer:
    """A planned buffer on a device, and the result of its memory test."""

    device: str
    index: int
    """The buffer's ``memory_id``."""
    size: int
    """Size of the buffer in bytes."""
    alignment: int
    """Largest power of two that divides the buffer's address."""
    memory: str
    """Kind of memory at the buffer's address and the source of this fact, such as ``device (libcudart)``."""
    extents: int
    """Number of extents tested, over all methods.

    Each extent was written and read back while other extents were in use.
    """
    written: int
    """Bytes that were written to the extents."""
    seconds: float


@dataclass(frozen=True, slots=True)
class MemoryOutside:
    """Memory of a method outside of its planned buffers, as ExecuTorch's C++ runtime takes it on this machine."""

    method: str
    method_pool: int
    """Bytes of the method allocator: values, tensors, and memory that delegates take from it."""
    temporary_pool: int
    """Bytes of the temporary allocator that keep the method pool small and that the calls work with."""
    heap: int | None
    """Largest number of heap bytes in use at once, at load or in a call: those of delegates. None if not counted."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Free memory of a device before, during and after the check."""

    device: str
    free_before: int | None
    """Free bytes before the check; None if the device does not report it."""
    free_during: int | None
    """Free bytes while all buffers are allocated."""
    free_after: int | None
    total: int | None
