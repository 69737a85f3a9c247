"""Persistent records of values that a move or a view has set.

The record of a value contains the places where the value's bytes may be, and the tensors to which the value may refer.
Copying all records takes no time, because the copy shares the records. A join shares the records that do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from etdev.program.analysis.contents import Pieces
from etdev.program.analysis.persistent import (
    PARTS,
    Node,
    joined,
    members,
    united,
    value_at,
    values,
    with_members,
    with_value,
)

Targets: TypeAlias = Mapping[int, Node]
"""Maps each possible place of a tensor to the possible writers of the place.

The map ignores paths on which the tensor is not at the place. A place is identified by the value that owns it.
:data:`ELSEWHERE` is unplanned memory.
"""
ELSEWHERE = -1
"""Place that represents all unplanned memory: constants, and memory of the caller."""


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """Possible places and tensors of one value that a move or a view has set."""

    value: int
    targets: Targets
    """Places where the value's bytes may be."""
    tensors: frozenset[int]
    """Value indices of the tensors to which this value may refer. Without a move, this is only the value itself."""

    def __eq__(self, other: object) -> bool:
        """Return whether two records are equal, including the order of their places."""
        return self is other or (
            isinstance(other, Pointer)
            and (self.value, self.tensors) == (other.value, other.tensors)
            and list(self.targets.items()) == list(other.targets.items())
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes and places that all records of one method share."""

    pieces: Mapping[int, Pieces]
    """Maps the owner of a place to the place's range of pieces. See :class:`etdev.program.analysis.contents.Memory`."""
    pieces_size: int
    """Size of a map with one entry per piece."""
    size: int
    """Size of a map with one entry per value."""
    views: bool
    """True if the method has views. Otherwise, :meth:`Pointers.same` always returns an empty set."""


class Pointers:
    """Records at one point of a method: one :class:`Pointer` for each value that a move or a view has set.

    A value without a record still refers to its own tensor, at its own place.
    """

    __slots__ = ("_known", "_layout", "_over", "_same", "_touched")

    def __init__(self, layout: Layout, known: Node = None, over: Node = False, same: Node = False) -> None:
        """Start from the records ``known``. ``over`` and ``same`` are sets for searches in these records."""
        self._layout = layout
        self._known = known
        """Maps a value to its :class:`Pointer`, or to None if the value has no record."""
        self._over = over
        """Set of pairs: a stretch of pieces, and a value whose bytes may include the whole stretch.

        The set is for searches in ``_known`` by pieces. One integer encodes a pair. See :func:`_stretches`.
        """
        self._same = same
        """Set of pairs: a tensor, and another value that may refer to this tensor.

        The set is for searches in ``_known`` by tensor.
        """
        self._touched: set[int] = set()
        """Values whose records were replaced since this object was created."""

    def copy(self) -> Pointers:
        """Return a copy that shares all records with this object."""
        return Pointers(self._layout, self._known, self._over, self._same)

    def __eq__(self, other: object) -> bool:
        """Return whether two objects have the same records."""
        return isinstance(other, Pointers) and (self._known is other._known or self._known == other._known)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Pointer]:
        """Yield all records in the order of their values."""
        return (item for item in values(self._known, self._layout.size, 0, self._layout.size) if item is not None)

    def get(self, value: int) -> Pointer | None:
        """Return the record of a value, or None if no move or view has set the value."""
        found: Pointer | None = value_at(self._known, self._layout.size, value)
        return found

    def put(self, pointer: Pointer) -> None:
        """Replace the record of a value."""
        value, size = pointer.value, self._layout.size
        old = self.get(value)
        self._touched.add(value)
        self._known = with_value(self._known, size, value, pointer)
        if old is None or old.targets.keys() != pointer.targets.keys():
            self._note_places(value, old.targets if old else (), present=False)
            self._note_places(value, pointer.targets, present=True)
        if old is None or old.tensors != pointer.tensors:
            self._note_tensors(value, old.tensors if old else (), present=False)
            self._note_tensors(value, pointer.tensors, present=True)

    def keep(self, needed: Callable[[int], bool], others: Iterable[int]) -> None:
        """Drop the records of values for which ``needed`` returns False.

        The method tests only ``others`` and the values whose records were replaced since this object was created.
        """
        for value in {*self._touched, *others}:
            if not needed(value):
                self._drop(value)

    def over(self, pieces: Pieces) -> list[int]:
        """Return the values that have a record and whose bytes may overlap ``pieces``, in ascending order."""
        if self._over is False:
            return []
        start, end = pieces
        found: set[int] = set()
        level, length = 0, 1
        while length <= self._layout.pieces_size:
            base = level * self._layout.pieces_size
            stretches = base + start // length, base + (end - 1) // length + 1
            found.update(self._others(self._over, self._over_size, *stretches))
            level, length = level + 1, length * PARTS
        return sorted(found)

    def same(self, tensors: Iterable[int]) -> set[int]:
        """Return the values whose records contain a tensor in ``tensors``. A value's own tensor does not count."""
        return {other for tensor in tensors for other in self._others(self._same, self._same_size, tensor, tensor + 1)}

    def joined(self, other: Pointers, join: Callable[[Pointer | None, Pointer | None], Pointer]) -> Pointers:
        """Join the records of two paths. If the two records of a value differ, ``join`` receives them.

        If a path has no record for the value, ``join`` receives None instead of this record.
        """
        alone: list[Pointer] = []

        def join_both(mine: Pointer | None, theirs: Pointer | None) -> Pointer:
            found = join(mine, theirs)
            if mine is None or theirs is None:
                alone.append(found)
            return mine if mine == found and mine is not None else found

        known = joined(self._known, other._known, join_both)
        over, same = united(self._over, other._over), united(self._same, other._same)
        both = Pointers(self._layout, known, over, same)
        for pointer in alone:  # On one of the paths, the value is still in its own place.
            both._note_places(pointer.value, pointer.targets, present=True)
            both._note_tensors(pointer.value, pointer.tensors, present=True)
        return both

    def _drop(self, value: int) -> None:
        old = self.get(value)
        if old is not None:
            self._known = with_value(self._known, self._layout.size, value, None)
            self._note_places(value, old.targets, present=False)
            self._note_tensors(value, old.tensors, present=False)

    @property
    def _over_size(self) -> int:
        return PARTS * self._layout.pieces_size * self._layout.size

    @property
    def _same_size(self) -> int:
        return self._layout.size * self._layout.size

    def _note_places(self, value: int, places: Iterable[int], *, present: bool) -> None:
        size, pieces_size = self._layout.size, self._layout.pieces_size
        pairs = (
            (level * pieces_size + number) * size + value
            for place in places
            if place != ELSEWHERE
            for level, number in _stretches(*self._layout.pieces[place])
        )
        self._over = with_members(self._over, self._over_size, pairs, present)

    def _note_tensors(self, value: int, tensors: Collection[int], *, present: bool) -> None:
        if self._layout.views:
            pairs = (tensor * self._layout.size + value for tensor in tensors if tensor != value)
            self._same = with_members(self._same, self._same_size, pairs, present)

    def _others(self, pairs: Node, pairs_size: int, start: int, end: int) -> Iterator[int]:
        """Yield the second number of each pair whose first number is from ``start`` to ``end`` (exclusive)."""
        size = self._layout.size
        return (pair % size for pair in members(pairs, pairs_size, start * size, end * size))


def _stretches(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Divide a range of pieces into a few stretches. Yield each stretch as a pair: its level, its index.

    On level 0, a stretch is one piece. On every other level, a stretch is 16 times as long as on the level before.
    """
    level = 0
    while start < end:
        while start < end and start % PARTS:
            yield level, start
            start += 1
        while start < end and end % PARTS:
            end -= 1
            yield level, end
        level, start, end = level + 1, start // PARTS, end // PARTS
