"""Small parts of results, known without what finds them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Copies:
    """Bytes that a call copies at most, on the path that copies most in both directions together.

    With the largest sizes of all tensors. What is in a loop counts once, as if its rounds were one.
    """

    h2d_bytes: int
    """From the host to devices."""
    d2h_bytes: int
    """From devices to the host."""
    loops: bool = False
    """Whether some of it is copied again in each round of a loop."""

    @property
    def total(self) -> int:
        """Bytes in both directions."""
        return self.h2d_bytes + self.d2h_bytes

    def __str__(self) -> str:
        rounds = ", some of it again in each round of a loop" if self.loops else ""
        return f"{self.h2d_bytes:,} bytes to devices, {self.d2h_bytes:,} bytes back{rounds}"


@dataclass(frozen=True, slots=True)
class AllocatedBuffer:
    """One planned buffer, and what was done in it."""

    device: str
    index: int
    """Its ``memory_id``."""
    size: int
    """Bytes."""
    alignment: int
    """Largest power of two that its address was a multiple of."""
    memory: str
    """What its address is of, and who said so: ``device (libcudart)``."""
    extents: int
    """Stretches of it, over all methods, that were written and read back while their neighbours were in use."""
    written: int
    """Bytes in them."""
    seconds: float


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of a device around the check."""

    device: str
    free_before: int | None
    """Bytes; None if the device does not say."""
    free_during: int | None
    """With all buffers allocated."""
    free_after: int | None
    total: int | None
