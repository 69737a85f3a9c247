"""Persistent maps from pieces of planned memory to the writes that may have produced the bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from etdev.program.analysis.persistent import Node, assigned, room, updated, value_at, values

Writes: TypeAlias = frozenset[int]
"""Set of the numbers of writes. :data:`BEFORE` represents the content from before the method began."""

BEFORE = 0
"""Number that represents the content from before the method began. Writes are numbered from 1."""
UNWRITTEN: Writes = frozenset({BEFORE})

Pieces: TypeAlias = tuple[int, int]
"""Half-open range of pieces: the first piece, and the piece after the last."""


class Memory:
    """All planned memory of a method, cut into pieces.

    A tensor's *place* is the bytes of the tensor; pieces begin and end where places begin or end. Each place is a range
    of whole pieces. Methods of this class return persistent maps from pieces to :data:`Writes`.
    """

    def __init__(self, places: Mapping[int, tuple[int, int, int]]) -> None:
        """Cut memory into pieces at the start and the end of each place.

        ``places`` maps the index of a tensor to the tensor's planned buffer, first byte and end (exclusive).
        """
        borders = sorted({(buffer, at) for buffer, start, end in places.values() for at in (start, end)})
        number = {border: index for index, border in enumerate(borders)}
        self.pieces: dict[int, Pieces] = {
            value: (number[buffer, start], number[buffer, end]) for value, (buffer, start, end) in places.items()
        }
        """Maps the value index of a tensor to the range of pieces that the tensor covers."""
        self.size = room(len(borders))
        self._alone: dict[int, Writes] = {}
        """Cache. Maps the number of a write to the set that contains only this number."""

    def of(self, contents: Node, place: int) -> Writes:
        """Return all writes that may have produced bytes of a place."""
        found: Writes = frozenset()
        for writes in values(contents, self.size, *self.pieces[place]):
            found = found | writes if found else writes
        return found

    def part(self, contents: Node, place: int) -> Node:
        """Return a map with the content of one place.

        If the place has several pieces, all memory outside of the place is unwritten in the map. If the place is a
        single piece, all pieces of the map have the content of this piece. Such a map takes no additional memory.
        """
        start, end = self.pieces[place]
        if end - start == 1:
            return value_at(contents, self.size, start)
        contents = assigned(contents, self.size, 0, start, UNWRITTEN) if start else contents
        return assigned(contents, self.size, end, self.size, UNWRITTEN) if end < self.size else contents

    def inside(self, place: int, pieces: Pieces) -> Pieces:
        """Return the pieces in ``pieces`` that belong to a place, as a range in the map that :meth:`part` returns.

        If the place is a single piece, the range is empty or covers the whole map.
        """
        start, end = self.pieces[place]
        first, last = max(start, pieces[0]), min(end, pieces[1])
        return (0, self.size) if end - start == 1 and first < last else (first, last)

    def written(self, number: int, contents: Node, pieces: Pieces) -> Node:
        """Return ``contents`` with write ``number`` as the only possible writer of ``pieces``."""
        alone = self._alone.setdefault(number, frozenset({number}))
        return assigned(contents, self.size, *pieces, alone)

    def added(self, number: int, keeps: Callable[[int], bool] | None, contents: Node, pieces: Pieces) -> Node:
        """Return ``contents`` with write ``number`` added to the possible writers of ``pieces``.

        ``keeps`` receives the number of an earlier write in these pieces. The earlier write is dropped if ``keeps``
        returns False.
        """

        def change(known: Writes) -> Writes:
            kept = known if keeps is None else filter(keeps, known)
            return frozenset({number, *kept})

        return updated(contents, self.size, *pieces, change)
