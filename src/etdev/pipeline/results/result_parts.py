"""Small parts of results. This module does not import the checks that use them."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Kind of memory at the buffer's address, and in parentheses the source of this fact: ``device (libcudart)``."""
    extents: int
    """Number of extents tested, over all methods. An extent is a range of bytes during the time that it is in use.

    Each extent was written and read back while other extents were in use.
    """
    written: int
    """Bytes that were written to the extents."""
    seconds: float


@dataclass(frozen=True, slots=True)
class MemoryOutside:
    """Memory that ExecuTorch's C++ runtime needs for a method, in addition to the planned buffers."""

    method: str
    method_pool: int
    """Bytes that the method allocator needs for values, tensors and the objects of delegates."""
    temporary_pool: int
    """Bytes that the temporary allocator needs: for calls, and for the lookup of kernels at load.

    With a smaller temporary allocator, the lookup would use the method allocator instead.
    """
    heap: int | None
    """Largest number of heap bytes in use at once, at load or in a call; None if not counted."""


def ram_parts(planned: int, outside: Sequence[MemoryOutside]) -> dict[str, int] | None:
    """Return the parts of a program's RAM on the host in bytes, by name; None if its heap was not counted.

    All methods are loaded. ``planned`` is the planned memory in bytes. The methods share the temporary pool, so its
    size is the maximum over the methods. All other parts are sums over the methods.
    """
    heaps = [item.heap for item in outside if item.heap is not None]
    if len(heaps) < len(outside):
        return None
    return {
        "planned memory": planned,
        "method pools": sum(item.method_pool for item in outside),
        "temporary pool": max((item.temporary_pool for item in outside), default=0),
        "heap": sum(heaps),
    }


_FIRST = ("scratch", "fast_scratch", "sram", "dram")
"""Kinds of memory that are shown first, in this order; other kinds follow in alphabetical order."""


@dataclass(frozen=True, slots=True)
class DelegateMemory:
    """Memory of a delegate as its compiler reports it, in addition to the planned memory of the method."""

    delegate: int
    """Index of the delegate in the method."""
    id: str
    """Name of the backend."""
    sizes: dict[str, int]
    """Maps the compiler's name of a figure to bytes. Vela reports ``scratch``, ``fast_scratch`` and kinds of memory."""

    def named_sizes(self) -> dict[str, int]:
        """Return the sizes that are not zero, by readable name; the order does not depend on the order of ``sizes``."""
        kinds = sorted(self.sizes, key=lambda kind: (_FIRST.index(kind) if kind in _FIRST else len(_FIRST), kind))
        return {kind.replace("_", " "): self.sizes[kind] for kind in kinds if self.sizes[kind]}


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
