"""Numbers of elements that are known to be equal because of a view.

A view has the same number of elements as its input; otherwise the program fails at run time. Where paths merge, a fact
holds if it holds on every path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from etdev.validator.domain import numbers
from etdev.validator.domain.merge import Guards, Merges
from etdev.validator.domain.numbers import Dims, Number


class Counts:
    """Numbers that are known to be equal at a point of the program."""

    __slots__ = ("_on", "_same")

    def __init__(self) -> None:
        self._same: dict[Number, Number] = {}
        """Maps a number to an equal number."""
        self._on: dict[tuple[int, int], dict[Number, Number]] = {}
        """Maps ``(merge, index of a path)`` to a map from numbers to equal numbers.

        These numbers are equal if the merge was last entered on that path.
        """

    def copy(self) -> Counts:
        """Return an independent copy."""
        found = Counts()
        found._same, found._on = self._same.copy(), self._on
        return found

    def equate(self, one: Dims, other: Dims) -> None:
        """Record that two tensors have the same number of elements."""
        mine, theirs = (self._find(numbers.product(dims)) for dims in (one, other))
        if mine != theirs:
            self._same[theirs] = mine

    def forget(self, merges: Merges, reached: Collection[int]) -> None:
        """Remove facts that become invalid when one of the merges in ``reached`` is reached again."""
        self._same = {one: same for one, same in self._same.items() if not merges.mentions((one, same), reached)}
        self._on = {way: known for way, known in self._on.items() if way[0] not in reached}

    @classmethod
    def joined(cls, merges: Merges, merge: int, ways: Sequence[Counts]) -> Counts:
        """Return the facts that hold where paths merge. ``ways`` has the facts of each path."""
        found = cls()
        # In a loop, a path without the merge may have passed it in an earlier iteration.
        found._on = {
            way: known
            for item in ways
            for way, known in item._on.items()
            if not merges.bit(way[0]) or all(other._on.get(way) == known for other in ways)
        }
        found._same = {one: same for one, same in ways[0]._same.items() if all(w._same.get(one) == same for w in ways)}
        found.forget(merges, (merge,))
        found._on.update(((merge, number), item._same) for number, item in enumerate(ways) if item._same)
        return found

    def same(self, merges: Merges, one: Number, other: Number, guards: Guards = ()) -> bool:
        """Return whether two numbers are equal on the paths that ``guards`` describes."""
        return self._find(one) == self._find(other) or self._on_each_way(
            merges, guards, lambda on: not self._equal(merges, one, on).isdisjoint({other, merges.number_on(other, on)})
        )

    def reaches(self, merges: Merges, one: Number, least: Number, guards: Guards = ()) -> bool:
        """Return whether a number is equal to another one, or to an integer that is greater, on these paths."""
        if self.same(merges, one, least, guards):
            return True
        return isinstance(least, int) and self._on_each_way(
            merges,
            guards,
            lambda on: any(isinstance(number, int) and number > least for number in self._equal(merges, one, on)),
        )

    def _on_each_way(self, merges: Merges, guards: Guards, holds: Callable[[Guards], bool]) -> bool:
        """Return whether a condition holds on these paths, or on each path into some merge of a known number."""
        if holds(guards):
            return True
        # A fact about a merged number holds only after that merge.
        unknowns = {symbol for pair in self._same.items() for number in pair for symbol in numbers.unknowns(number)}
        split = {merge: ways for symbol in unknowns for merge, ways in merges.ways_of_number(symbol)}
        return any(
            all(holds((*guards, (merge, way))) for way in range(ways))
            for merge, ways in sorted(split.items())
            if all(merge != reached for reached, _ in guards)
        )

    def _find(self, number: Number) -> Number:
        while number in self._same:
            number = self._same[number]
        return number

    def _equal(self, merges: Merges, one: Number, guards: Guards) -> set[Number]:
        """Return all numbers that are known to be equal to a number on these paths."""
        equal: dict[Number, set[Number]] = defaultdict(set)
        for known in (self._same, *(self._on.get(way, {}) for way in guards)):
            for pair in known.items():
                found = {*pair, *(merges.number_on(number, guards) for number in pair)}
                for number in found:
                    equal[number] |= found
        seen: set[Number] = set()
        waiting = [one, merges.number_on(one, guards)]
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting += equal.get(number, ())
        return seen
