"""Poison for bytes that are not in use, so that a wrong plan cannot pass by luck.

The pattern is a NaN in every float type, a number larger than any size in the wider integer types, and true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from etdev.program.analysis.storage import MethodMemory, Storage

if TYPE_CHECKING:
    from etdev.runtime.interpreter.tensors import Memory

_PATTERN = b"\xff\x7f"
"""Bytes at even and at odd addresses in a buffer."""

Range = tuple[int, int, int]
"""Buffer, first byte, end (exclusive)."""
State = tuple["Memory", int, int]
"""Memory, first byte, end (exclusive)."""


def fill(memory: Memory, start: int, end: int) -> None:
    """Overwrite bytes ``start`` to ``end`` (exclusive) of a memory with the pattern, on its own device."""
    memory.fill(start, end, _PATTERN[::-1] if start % 2 else _PATTERN)


class Poison:
    """Schedule of overwrites: bytes in use before an instruction that are not in use at it.

    ``memories`` are the buffers by number. State is always in use, including state of other methods in the same memory.
    """

    def __init__(self, found: MethodMemory, memories: Sequence[Memory | None]) -> None:
        self._storages = found.storages
        self._memories = memories
        self._known: dict[tuple[int | None, int], tuple[Range, ...]] = {}
        self._kept: dict[int, list[tuple[int, int]]] = {}
        """Identity of a memory → its state ranges, sorted."""
        self.spare(self.state())

    def state(self) -> list[State]:
        """Return the ranges that the method keeps from call to call."""
        found = []
        for storage in self._storages:
            memory = self._memories[storage.memory_id]
            if storage.persistent and memory is not None:
                found.append((memory, storage.offset, storage.offset + storage.size))
        return found

    def spare(self, state: Iterable[State]) -> None:
        """Exclude these bytes from all overwrites."""
        for memory, start, end in state:
            self._kept.setdefault(id(memory), []).append((start, end))
        for spans in self._kept.values():
            spans.sort()

    def overwrite(self, memory: Memory, start: int, end: int) -> None:
        """Overwrite bytes ``start`` to ``end`` (exclusive) of a memory, except state."""
        for low, high in _without((start, end), self._kept.get(id(memory), [])):
            fill(memory, low, high)

    def between(self, before: int | None, instant: int) -> None:
        """Overwrite bytes in use at ``before`` but not at ``instant``.

        With None, overwrite all bytes that are not in use at ``instant``.
        """
        key = before, instant
        if key not in self._known:
            self._known[key] = tuple(self._ranges(before, instant))
        for buffer, start, end in self._known[key]:
            memory = self._memories[buffer]
            assert memory is not None
            self.overwrite(memory, start, end)

    def _ranges(self, before: int | None, instant: int) -> list[Range]:
        found: list[Range] = []
        live: dict[int, list[tuple[int, int]]] | None = None
        for storage in self._storages:
            if not storage.size or _live(storage, instant) or not (before is None or _live(storage, before)):
                continue
            if live is None:
                live = self._live_at(instant)
            parts = _without((storage.offset, storage.offset + storage.size), live.get(storage.memory_id, []))
            found += [(storage.memory_id, start, end) for start, end in parts]
        return found

    def _live_at(self, instant: int) -> dict[int, list[tuple[int, int]]]:
        """Return the ranges in use at an instant, sorted, by buffer."""
        found: dict[int, list[tuple[int, int]]] = {}
        for storage in self._storages:
            if _live(storage, instant):
                found.setdefault(storage.memory_id, []).append((storage.offset, storage.offset + storage.size))
        return {buffer: sorted(spans) for buffer, spans in found.items()}


def _live(storage: Storage, instant: int) -> bool:
    return storage.persistent or storage.start <= instant < storage.end


def _without(whole: tuple[int, int], taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a range outside of ``taken``, which is sorted."""
    found = []
    start, end = whole
    for low, high in taken:
        if high <= start:
            continue
        if low >= end:
            break
        if low > start:
            found.append((start, low))
        start = high
    if start < end:
        found.append((start, end))
    return found
