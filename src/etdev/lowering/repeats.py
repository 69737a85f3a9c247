"""Reuse of tilings: if a stretch of a graph at the peak equals an earlier one, choose the same tiling again.

A stretch is a range of consecutive ops of a graph. The layers of a network are often equal. The choice of a tiling
depends only on a stretch around the peak. So equal stretches lead to equal choices.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etdev.lowering.estimates import Choice, Estimates, Figures, Ops
from etdev.lowering.occupancy import Occupancy
from etdev.lowering.regions import REACH, Region

if TYPE_CHECKING:
    from torch.fx import Node


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A chosen tiling that applies to any graph: ops are identified by their distance from the peak."""

    ops: Ops
    pieces: int
    figures: Figures


@dataclass(slots=True)
class Known:
    """Estimates and choices of tilings for a stretch of a graph."""

    figures: dict[Ops, dict[int, Figures | None]] = field(default_factory=dict)
    overlaps: dict[Ops, dict[int, bool]] = field(default_factory=dict)
    choices: dict[int, _Chosen | None] = field(default_factory=dict)
    """Maps a goal for the peak in bytes to the best tiling, or to None if no tiling lowers the peak."""
    before: int = 0
    """Number of the stretch's ops that come before the peak."""
    after: int = 0
    """Number of the stretch's ops that come after the peak."""

    def add(self, other: Known) -> None:
        """Add the estimates and choices for another stretch around the same peak."""
        for ops, figures in other.figures.items():
            self.figures[ops] = {**self.figures.get(ops, {}), **figures}
        for ops, overlaps in other.overlaps.items():
            self.overlaps[ops] = {**self.overlaps.get(ops, {}), **overlaps}
        self.choices |= other.choices
        self.before, self.after = max(self.before, other.before), max(self.after, other.after)

    def choice(self, goal: int, occupancy: Occupancy) -> Choice | None:
        """Return the choice in ``choices`` for a goal, translated to a graph that has this stretch at its peak."""
        found = self.choices[goal]
        if found is None:
            return None
        nodes, peak = occupancy.nodes, occupancy.peak_index
        region = Region.of((nodes[peak + distance], axis, grains) for distance, axis, grains in found.ops)
        return Choice(region, found.pieces, *found.figures)


class Repeats:
    """Known estimates and choices of tilings, stored by the stretch of a graph on which they depend."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Known] = {}
        self._extents: defaultdict[Hashable, dict[tuple[int, int], None]] = defaultdict(dict)
        """Maps each result of :func:`_kind` to the extents of the known stretches in such graphs.

        An extent is a pair: the number of ops that come before the peak, and the number of ops that come after it.
        """
        self._facts: dict[int, tuple[Any, Hashable]] = {}
        """Maps the ``id`` of a value in a node's metadata to a pair: the value, and its :func:`facts_of`."""

    def find(self, occupancy: Occupancy) -> Known:
        """Return the known estimates and choices for the stretch around the peak, as a new object."""
        peak, both = occupancy.peak_index, Known()
        for before, after in self._extents.get(_kind(occupancy), ()):
            found = self._known.get(self._key(occupancy, before, after)) if before <= peak else None
            if found is not None:
                both.add(found)
        return both

    def add(self, known: Known, estimates: Estimates, goal: int, choice: Choice | None) -> None:
        """Store a choice, and the estimates that led to it. ``known`` must be the result of :meth:`find`."""
        occupancy = estimates.occupancy
        peak = occupancy.peak_index
        # Ops outside of the estimates may have ended the growth of a region.
        grown = [occupancy.at[node] for node, _ in occupancy.needs]
        known.before = max(known.before, peak - min((estimates.begin, *grown)))
        known.after = max(known.after, max((estimates.end, *grown)) - peak)
        known.figures, known.overlaps = estimates.figures, estimates.overlaps
        known.choices[goal] = None
        if choice is not None:
            figures = Figures(choice.full, choice.fewer, choice.peak)
            known.choices[goal] = _Chosen(estimates.ops_of(choice.region), choice.pieces, figures)
        self._extents[_kind(occupancy)][known.before, known.after] = None
        key = self._key(occupancy, known.before, known.after)
        self._known.setdefault(key, Known()).add(known)

    def _key(self, occupancy: Occupancy, before: int, after: int) -> Hashable:
        """Return a key for a stretch around the peak. Equal stretches have equal keys."""
        peak = occupancy.peak_index
        return before, after, _Stretch(occupancy, peak - before, peak + after, self._facts).identity()


def _kind(occupancy: Occupancy) -> Hashable:
    """Return a graph's key, which is fast to compute. Graphs with equal stretches around the peak have the same key."""
    peak = occupancy.peak_index
    return occupancy.nodes[peak].target, occupancy.lifetimes.bytes[peak]


class _Stretch:
    """Ops ``begin`` to ``end`` of a graph, and all facts about other ops on which a choice may depend.

    Each op gets a number as its name. The name of an op of the stretch is the distance from ``begin``. The names
    of all other ops are negative.
    """

    def __init__(self, occupancy: Occupancy, begin: int, end: int, facts: dict[int, tuple[Any, Hashable]]) -> None:
        self._occupancy, self._begin, self._end, self._facts = occupancy, begin, end, facts
        self._others: dict[int, int] = {}
        """Maps the index of each op outside of the stretch to its name, a negative number."""
        self._read: set[int] = set()
        """Indices of the ops whose outputs are arguments of ops in the stretch."""

    def identity(self) -> Hashable:
        """Return a key for the stretch. Equal stretches have equal keys."""
        occupancy, begin, end = self._occupancy, self._begin, self._end
        inside = range(begin, min(end + 1, len(occupancy.nodes)))
        ops = [(*self._op(index), self._users(index)) for index in inside]
        others: list[Hashable] = []
        for index in (everything := list(self._others)):
            others.append(self._other(index))
            everything += list(self._others)[len(everything) :]
        return tuple(ops), tuple(occupancy.lifetimes.bytes[begin : end + 1]), tuple(others), self._at_peak()

    def _op(self, index: int) -> tuple[Hashable, ...]:
        node = self._occupancy.nodes[index]
        return (
            node.op,
            node.target if node.op == "call_function" else None,
            self._argument(node.args),
            self._argument(tuple(node.kwargs.items())),
            self._value(node),
            (self._occupancy.ops[index].kind, self._occupancy.ops[index].runs_along),
            self._memory(index),
        )

    def _other(self, index: int) -> Hashable:
        """Return the facts about an op outside of the stretch.

        One fact is the op's distance from ``begin``. Distances greater than ``REACH`` count as equal. The output's
        sizes matter only if an op of the stretch reads the output.
        """
        node = self._occupancy.nodes[index]
        distance = min(self._begin - index, REACH + 1) if node.op == "call_function" else None
        value = self._value(node) if index in self._read else None
        return node.op, distance, value, self._memory(index)

    def _users(self, index: int) -> tuple[int, ...]:
        """Return one number for each user of an op: its distance from ``begin``, or -1 if it is outside the stretch."""
        at = self._occupancy.at
        found = (at[user] for user in self._occupancy.nodes[index].users)
        return tuple([user - self._begin if user <= self._end else -1 for user in found])

    def _memory(self, index: int) -> tuple[Hashable, ...]:
        """Return the facts about the memory of an op's output, with the lifetime clipped to the stretch."""
        lifetimes, op = self._occupancy.lifetimes, self._occupancy.ops[index]
        return (
            (op.nbytes, op.is_planned),
            self._name(lifetimes.home[index]),
            *self._lifetime(index),
        )

    def _lifetime(self, index: int) -> tuple[int, int]:
        lifetimes = self._occupancy.lifetimes
        first = max(lifetimes.first[index], self._begin - 1) - self._begin
        return first, min(lifetimes.last[index], self._end + 1) - self._begin

    def _at_peak(self) -> Hashable:
        """Return facts about the memory in use at the peak.

        The first item has the names of the ops that own this memory. For ops without a name, the second item has their
        total bytes, by lifetime.
        """
        names, sizes = [], Counter[tuple[int, int]]()
        for home in self._occupancy.at_peak:
            if self._begin <= home <= self._end or home in self._others:
                names.append(self._name(home))
            else:
                sizes[self._lifetime(home)] += self._occupancy.ops[home].nbytes
        return frozenset(names), frozenset(sizes.items())

    def _name(self, index: int) -> int:
        if self._begin <= index <= self._end:
            return index - self._begin
        return self._others.setdefault(index, -len(self._others) - 1)

    def _argument(self, item: Any) -> Hashable:
        if isinstance(item, (tuple, list)):
            return tuple(map(self._argument, item))
        # Names are integers. All other arguments become text. A SymInt has no hash, so it is not looked up.
        if item is None or isinstance(item, (int, float)):
            return repr(item)
        from torch.fx import Node  # Imported only where it is needed, because this function runs very often.

        if not isinstance(item, Node):
            return repr(item)
        index = self._occupancy.at[item]
        self._read.add(index)
        return self._name(index)

    def _value(self, node: Node) -> Hashable:
        value = node.meta.get("val")
        known = self._facts.get(id(value))
        if known is None:
            known = self._facts[id(value)] = value, facts_of(value)
        return known[1]


def facts_of(value: Any) -> Hashable:
    """Return element type, sizes and strides of the tensors in a node's metadata."""
    import torch

    if isinstance(value, (tuple, list)):
        return tuple(map(facts_of, value))
    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        return repr(value)
    return value.dtype, tuple(value.shape), value.stride()
