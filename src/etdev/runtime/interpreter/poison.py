"""Poison: a pattern in unused bytes that makes a wrong read visible in the results.

The pattern is NaN in all float types and true as a bool. In integer types of 16 bits and more, it is a very large
number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from etdev.program.analysis.storage import MethodMemory
from etdev.program.analysis.unused import Range, unused_in_turn, unused_ranges, without

if TYPE_CHECKING:
    from etdev.runtime.interpreter.tensors import Memory

_PATTERN = b"\xff\x7f"
"""Two bytes of poison: the first for even addresses, the second for odd addresses."""

State = tuple["Memory", int, int]
"""A byte range of state: its memory, first byte, and end (exclusive)."""


def fill(memory: Memory, start: int, end: int) -> None:
    """Fill bytes ``start`` to ``end`` (exclusive) of a memory with poison."""
    memory.fill(start, end, _PATTERN[::-1] if start % 2 else _PATTERN)


class Poison:
    """Writer of poison: overwrites bytes of one method's planned buffers as soon as they are no longer in use.

    ``memories`` maps the index of a planned buffer to its memory. State is never overwritten. This includes the state
    of other methods in the same memory.
    """

    def __init__(self, found: MethodMemory, memories: Sequence[Memory | None]) -> None:
        self._storages = found.storages
        self._memories = memories
        self._known: dict[tuple[int | None, int], Sequence[Range]] = {
            (instant - 1, instant): ranges for instant, ranges in unused_in_turn(found.storages).items()
        }
        self._kept: dict[int, list[tuple[int, int]]] = {}
        """Maps the ``id`` of a memory to the sorted byte ranges of state in that memory."""
        self.spare(self.state())

    def state(self) -> list[State]:
        """Return the byte ranges of state, which keep their content between calls."""
        found = []
        for storage in self._storages:
            memory = self._memories[storage.memory_id]
            if storage.persistent and memory is not None:
                found.append((memory, storage.offset, storage.offset + storage.size))
        return found

    def spare(self, state: Iterable[State]) -> None:
        """Exclude byte ranges from poison, because they contain state."""
        for memory, start, end in state:
            self._kept.setdefault(id(memory), []).append((start, end))
        for spans in self._kept.values():
            spans.sort()

    def overwrite(self, memory: Memory, start: int, end: int) -> None:
        """Fill bytes ``start`` to ``end`` (exclusive) of a memory with poison, except for state."""
        for low, high in without((start, end), self._kept.get(id(memory), [])):
            fill(memory, low, high)

    def between(self, before: int | None, instant: int) -> None:
        """Overwrite the bytes that were in use at the instant ``before`` and are not in use at ``instant``.

        If ``before`` is None, overwrite all bytes that are not in use at ``instant``.
        """
        key = before, instant
        if key not in self._known:
            is_next = before is not None and instant == before + 1
            self._known[key] = () if is_next else unused_ranges(self._storages, before, instant)
        for buffer, start, end in self._known[key]:
            memory = self._memories[buffer]
            assert memory is not None
            self.overwrite(memory, start, end)
