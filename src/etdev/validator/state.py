"""What holds at one point of the two programs: memory, sizes, numbers, and which tensor is which."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from etdev.validator.counts import Counts
from etdev.validator.facts import Place
from etdev.validator.memory import Content, Memory
from etdev.validator.numbers import Dims


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several things, depending on the path on which a merge was reached last."""

    merge: int
    """Number of the block that the paths lead to."""
    ways: tuple[Tree, ...]
    """For each of its predecessors."""
    size: int = field(default=1, compare=False)
    """How many leaves there are."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that is not followed."""

    reason: str


@dataclass(frozen=True, slots=True)
class At:
    """A tensor and where it lies."""

    tensor: int
    """Value index of the tensor that it is."""
    place: Place | None


@dataclass(frozen=True, slots=True)
class Gap:
    """How an operand lies over an output with which it shares bytes."""

    bytes: int
    """From the first byte of the output to that of the operand."""
    same: bool
    """Are they one tensor, with the same shape, as far as is known?"""


Tree: TypeAlias = Choice | Unknown | At | Gap | int | Place | None
"""Which value's tensor a value is, where a tensor lies, both, or how two lie to each other."""
Number_: TypeAlias = tuple[object, ...]
"""What a number is, as a part of a key: ``("i", Number)`` or ``("s", symbol)``."""
Shadow: TypeAlias = tuple[tuple[object, ...], Dims, Content]
"""Kind, sizes and content of a tensor."""

_MOST_LEAVES = 256
"""Tensors that a value may be, or places that one may have; with more, it is given up."""
MEMORY, NUMBER, DIMS, REFERENCE, PLACE = range(5)
"""What an entry of a log is about."""
Entry: TypeAlias = tuple[int, ...]
"""``(kind, side, value)``, or of memory ``(MEMORY, side, space, start, end)``."""


class Log:
    """What has changed since another log."""

    __slots__ = ("depth", "entries", "parent")

    def __init__(self, parent: Log | None) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.entries: list[Entry] = []


_Item = TypeVar("_Item")


class Table(Generic[_Item]):
    """Facts about values. A copy takes no time proportional to them: both share a base that does not change."""

    __slots__ = ("_below", "_own")

    def __init__(self, own: dict[int, _Item] | None = None, below: Table[_Item] | None = None) -> None:
        self._own: dict[int, _Item] = own or {}
        self._below = below

    def get(self, value: int, default: _Item | None = None) -> _Item | None:
        """What is known of a value."""
        table: Table[_Item] | None = self
        while table is not None:
            if value in table._own:
                return table._own[value]
            table = table._below
        return default

    def __setitem__(self, value: int, item: _Item) -> None:
        self._own[value] = item

    def items(self) -> ItemsView[int, _Item]:
        """All values with what is known of them, as of now."""
        return {**dict(self._below.items() if self._below else ()), **self._own}.items()

    def copy(self) -> Table[_Item]:
        """Another one that knows as much."""
        if self._own:
            below = Table(self._own, self._below)
            # Each table has at least twice the values of the one above it: there are few, one on top of the other.
            while below._below and 2 * len(below._own) > len(below._below._own):
                below = Table({**below._below._own, **below._own}, below._below._below)
            self._own, self._below = {}, below
        return Table(None, self._below)


class State:
    """Both programs at one point; of each pair the first is the program before the link."""

    __slots__ = ("counts", "dims", "log", "memory", "numbers", "places", "references", "shadows")

    def __init__(self) -> None:
        self.memory: tuple[dict[int, Memory], dict[int, Memory]] = ({}, {})
        self.numbers: tuple[Table[Number_], Table[Number_]] = (Table(), Table())
        """Of those that were set."""
        self.dims: tuple[Table[Dims], Table[Dims]] = (Table(), Table())
        """Of the dynamic tensors that were given sizes."""
        self.references: tuple[Table[Tree], Table[Tree]] = (Table(), Table())
        """Which value's tensor each value is that a move has set."""
        self.places: tuple[Table[Tree], Table[Tree]] = (Table(), Table())
        """Where each tensor lies that a view has pointed elsewhere."""
        self.shadows: tuple[dict[int, Shadow], dict[int, Shadow]] = ({}, {})
        """What values hold that are another tensor in each round of a loop."""
        self.counts = Counts()
        self.log = Log(None)

    def copy(self) -> State:
        """Another one, whose log goes on from here; so does that of this one, apart from it."""
        found = State()
        found.memory = tuple({space: item.copy() for space, item in side.items()} for side in self.memory)  # type: ignore[assignment]
        for name in ("numbers", "dims", "references", "places", "shadows"):
            setattr(found, name, tuple(side.copy() for side in getattr(self, name)))
        found.counts = self.counts.copy()
        found.log = Log(self.log)
        self.log = Log(self.log)
        return found

    def table(self, kind: int, side: int) -> Table[object]:
        """What a kind of entries is about, on one side."""
        return (self.numbers, self.dims, self.references, self.places)[kind - 1][side]  # type: ignore[return-value]


def changes(states: Iterable[State]) -> tuple[Log | None, list[Entry]]:
    """The log that several states have in common, and what has changed since in any of them."""
    logs: list[Log | None] = [state.log for state in states]
    entries: dict[Entry, None] = {}
    while any(log is not logs[0] for log in logs):
        deepest = max(log.depth for log in logs if log is not None)
        for index, log in enumerate(logs):
            if log is not None and log.depth == deepest:
                entries.update(dict.fromkeys(log.entries))
                logs[index] = log.parent
    return logs[0], list(entries)


def changes_since(state: State, log: Log) -> list[Entry]:
    """What has changed in a state since a log that it comes from."""
    entries: dict[Entry, None] = {}
    at: Log | None = state.log
    while at is not None and at is not log:
        entries.update(dict.fromkeys(at.entries))
        at = at.parent
    return list(entries)


def each_leaf(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """A tree with its leaves replaced."""
    if not isinstance(tree, Choice):
        return change(tree)
    return choice(tree.merge, tuple(each_leaf(way, change) for way in tree.ways))


def choice(merge: int, ways: tuple[Tree, ...]) -> Tree:
    """One of some things; that thing, if all are the same."""
    if all(way == ways[0] for way in ways):
        return ways[0]
    size = sum(way.size if isinstance(way, Choice) else 1 for way in ways)
    if size > _MOST_LEAVES:
        return Unknown("which tensor a value is depends on too many conditions")
    return Choice(merge, ways, size)


def leaves(tree: Tree) -> list[Tree]:
    """All that it may be."""
    if not isinstance(tree, Choice):
        return [tree]
    return [leaf for way in tree.ways for leaf in leaves(way)]


def mentions(tree: Tree, merges: set[int]) -> bool:
    """Does a tree depend on how one of some merges was reached last?"""
    if not isinstance(tree, Choice):
        return False
    return tree.merge in merges or any(mentions(way, merges) for way in tree.ways)


def on_way(tree: Tree, merge: int, way: int) -> Tree:
    """What it is if a merge was last reached on one of its ways."""
    if not isinstance(tree, Choice):
        return tree
    if tree.merge == merge:
        return on_way(tree.ways[way], merge, way)
    return choice(tree.merge, tuple(on_way(item, merge, way) for item in tree.ways))
