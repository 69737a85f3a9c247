"""Small parts of results, in a module without dependencies on the checks that fill them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Copies:
    """Bytes that a call copies at most, on the path that copies most in both directions together.

    All tensors have their largest sizes. A copy in a loop counts once, as if the loop had one iteration.
    """

    h2d_bytes: int
    """Bytes copied from the host to devices."""
    d2h_bytes: int
    """Bytes copied from devices to the host."""
    loops: bool = False
    """True if an iteration of a loop repeats some of the copies."""

    @property
    def total(self) -> int:
        """Bytes in both directions."""
        return self.h2d_bytes + self.d2h_bytes

    def __str__(self) -> str:
        rounds = ", some of it again in each round of a loop" if self.loops else ""
        return f"{self.h2d_bytes:,} bytes to devices, {self.d2h_bytes:,} bytes back{rounds}"


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
