"""Who wrote the bytes of planned memory last: a map from ranges of bytes to the writes that they may come from."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import TypeAlias

Writes: TypeAlias = frozenset[int]
"""Numbers of writes. :data:`BEFORE` stands for what was there before the method began."""

BEFORE = 0
"""The number that no write has."""
_UNWRITTEN: Writes = frozenset({BEFORE})


class Contents:
    """The bytes from ``start`` on, up to any length, each with the set of writes that it may come from."""

    __slots__ = ("_places", "_writes")

    def __init__(self, start: int = 0) -> None:
        self._places = [start]
        """Where each piece begins; it ends where the next one does."""
        self._writes: list[Writes] = [_UNWRITTEN]

    def cut(self, start: int, end: int) -> None:
        """Let pieces begin there. What is cut alike is quick to join."""
        self._cut(start, end)

    def copy(self) -> Contents:
        """One that changes by itself."""
        other = Contents.__new__(Contents)
        other._places, other._writes = self._places.copy(), self._writes.copy()
        return other

    def write(self, start: int, end: int, number: int) -> None:
        """The bytes from ``start`` to before ``end`` come from that write."""
        first, last = self._cut(start, end)
        if first < last:
            self._places[first:last] = [start]
            self._writes[first:last] = [frozenset({number})]

    def update(self, start: int, end: int, number: int, keeps: Callable[[int], bool] | None = None) -> None:
        """The bytes may come from that write too; what they came from before is forgotten if it ``keeps`` that not."""
        first, last = self._cut(start, end)
        for index in range(first, last):
            known = self._writes[index] if keeps is None else filter(keeps, self._writes[index])
            self._writes[index] = frozenset({number, *known})

    def of(self, start: int, end: int) -> Writes:
        """All writes that any of the bytes may come from."""
        found: set[int] = set()
        for writes in self._between(start, end):
            found |= writes
        return frozenset(found)

    def part(self, start: int, end: int) -> Contents:
        """A copy of the bytes from ``start`` on, right up to before ``end``."""
        other = Contents(start)
        first = bisect_right(self._places, start) - 1
        last = bisect_left(self._places, end)
        other._places = [start, *self._places[first + 1 : last]]
        other._writes = self._writes[first:last] if last > first else [_UNWRITTEN]
        return other

    def join(self, other: Contents) -> Contents:
        """What may come from either. Both begin at the same byte."""
        if self == other:
            return self
        if self._places == other._places:
            same = self.copy()
            same._writes = [
                mine if mine == theirs else mine | theirs
                for mine, theirs in zip(self._writes, other._writes, strict=True)
            ]
            return same
        joined = Contents(self._places[0])
        places, writes = joined._places, joined._writes
        places.clear()
        writes.clear()
        mine = theirs = 0
        at = self._places[0]
        while True:
            either = self._writes[mine] | other._writes[theirs]
            if not writes or writes[-1] != either:
                places.append(at)
                writes.append(either)
            next_mine = self._places[mine + 1] if mine + 1 < len(self._places) else None
            next_theirs = other._places[theirs + 1] if theirs + 1 < len(other._places) else None
            if next_mine is None and next_theirs is None:
                return joined
            if next_mine is None or (next_theirs is not None and next_theirs < next_mine):
                assert next_theirs is not None
                at = next_theirs
            else:
                at = next_mine
            mine += next_mine == at
            theirs += next_theirs == at

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contents):
            return NotImplemented
        return self._places == other._places and self._writes == other._writes

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self._places)

    def _between(self, start: int, end: int) -> Iterator[Writes]:
        if start < end:
            first = bisect_right(self._places, start) - 1
            yield from self._writes[max(first, 0) : bisect_left(self._places, end)]

    def _cut(self, start: int, end: int) -> tuple[int, int]:
        """The pieces that are just these bytes, after the ones at the borders were cut."""
        if start >= end:
            return 0, 0
        return self._border(start), self._border(end)

    def _border(self, place: int) -> int:
        index = bisect_left(self._places, place)
        if index == len(self._places) or self._places[index] != place:
            self._places.insert(index, place)
            self._writes.insert(index, self._writes[index - 1])
        return index
