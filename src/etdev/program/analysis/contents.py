"""Persistent maps from each piece of planned memory to the writes from which the bytes of the piece may come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from etdev.program.analysis.persistent import Node, assigned, room, updated, value_at, values

Writes: TypeAlias = frozenset[int]
"""Numbers of writes. :data:`BEFORE` represents the content from before the method began."""

BEFORE = 0
"""Number that represents content from before the method began. Writes count from 1."""
UNWRITTEN: Writes = frozenset({BEFORE})

Pieces: TypeAlias = tuple[int, int]
"""Half-open range of pieces: the first piece, and the piece after the last."""


class Memory:
    """All planned memory of a method, cut into pieces.

    Each tensor's place is a range of whole pieces. Persistent maps state the writes from which each piece may come.
    """

    def __init__(self, places: Mapping[int, tuple[int, int, int]]) -> None:
        """Cut memory into pieces at every first byte and end of ``places``.

        ``places`` maps a value to its buffer, its first byte and its end (exclusive).
        """
        borders = sorted({(buffer, at) for buffer, start, end in places.values() for at in (start, end)})
        number = {border: index for index, border in enumerate(borders)}
        self.pieces: dict[int, Pieces] = {
            value: (number[buffer, start], number[buffer, end]) for value, (buffer, start, end) in places.items()
        }
        """Pieces of each value's place, by value."""
        self.size = room(len(borders))
        self._alone: dict[int, Writes] = {}
        """Set of a single write, by number of the write."""

    def of(self, contents: Node, place: int) -> Writes:
        """Return all writes from which any byte of a place may come."""
        found: Writes = frozenset()
        for writes in values(contents, self.size, *self.pieces[place]):
            found = found | writes if found else writes
        return found

    def part(self, contents: Node, place: int) -> Node:
        """Return the content of one place. All other memory is unwritten in the result.

        For a place of one piece, the map has one value for all pieces. Such a map takes no additional memory.
        """
        start, end = self.pieces[place]
        if end - start == 1:
            return value_at(contents, self.size, start)
        contents = assigned(contents, self.size, 0, start, UNWRITTEN) if start else contents
        return assigned(contents, self.size, end, self.size, UNWRITTEN) if end < self.size else contents

    def inside(self, place: int, pieces: Pieces) -> Pieces:
        """Convert pieces of all memory to pieces of the result of :meth:`part` for a place."""
        start, end = self.pieces[place]
        first, last = max(start, pieces[0]), min(end, pieces[1])
        return (0, self.size) if end - start == 1 and first < last else (first, last)

    def written(self, number: int, contents: Node, pieces: Pieces) -> Node:
        """Return ``contents`` with the content of some pieces replaced by one write."""
        alone = self._alone.setdefault(number, frozenset({number}))
        return assigned(contents, self.size, *pieces, alone)

    def added(self, number: int, keeps: Callable[[int], bool] | None, contents: Node, pieces: Pieces) -> Node:
        """Return ``contents`` with a write added to some pieces. Drop earlier writes where ``keeps`` returns False."""

        def change(known: Writes) -> Writes:
            kept = known if keeps is None else filter(keeps, known)
            return frozenset({number, *kept})

        return updated(contents, self.size, *pieces, change)
