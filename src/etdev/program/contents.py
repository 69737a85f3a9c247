"""Writes that each piece of planned memory may come from, as a persistent map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from etdev.program.persistent import Node, assigned, room, updated, values

Writes: TypeAlias = frozenset[int]
"""Numbers of writes. :data:`BEFORE` stands for what was there before the method began."""

BEFORE = 0
"""The number that no write has."""
UNWRITTEN: Writes = frozenset({BEFORE})

Pieces: TypeAlias = tuple[int, int]
"""The first piece and the one behind the last."""


class Memory:
    """The pieces of all planned memory, and maps from them to the writes that they may come from.

    A piece has no border of any place inside it.
    """

    def __init__(self, places: Mapping[int, tuple[int, int, int]]) -> None:
        """``places``: value → its buffer, its first byte and the one behind its last."""
        borders = sorted({(buffer, at) for buffer, start, end in places.values() for at in (start, end)})
        number = {border: index for index, border in enumerate(borders)}
        self.pieces: dict[int, Pieces] = {
            value: (number[buffer, start], number[buffer, end]) for value, (buffer, start, end) in places.items()
        }
        """By value."""
        self.size = room(len(borders))
        self._alone: dict[int, Writes] = {}
        """Number of a write → the set of it."""

    def of(self, contents: Node, place: int) -> Writes:
        """Return all writes that any byte of a place may come from."""
        found: Writes = frozenset()
        for writes in values(contents, self.size, *self.pieces[place]):
            found = found | writes if found else writes
        return found

    def part(self, contents: Node, place: int) -> Node:
        """Return what one place holds: nothing was written elsewhere."""
        start, end = self.pieces[place]
        contents = assigned(contents, self.size, 0, start, UNWRITTEN) if start else contents
        return assigned(contents, self.size, end, self.size, UNWRITTEN) if end < self.size else contents

    def written(self, number: int, contents: Node, pieces: Pieces) -> Node:
        """Let some pieces come from a write."""
        alone = self._alone.setdefault(number, frozenset({number}))
        return assigned(contents, self.size, *pieces, alone)

    def added(self, number: int, keeps: Callable[[int], bool] | None, contents: Node, pieces: Pieces) -> Node:
        """Let some pieces come from a write as well; what ``keeps`` denies is forgotten."""

        def change(known: Writes) -> Writes:
            kept = known if keeps is None else filter(keeps, known)
            return frozenset({number, *kept})

        return updated(contents, self.size, *pieces, change)
