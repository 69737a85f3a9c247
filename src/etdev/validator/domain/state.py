"""State of both programs at one point: memory, sizes, numbers, and the tensor to which each value refers."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from etdev.validator.domain.counts import Counts
from etdev.validator.domain.memory import Content, Memory
from etdev.validator.domain.numbers import Dims
from etdev.validator.facts import Place


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives, one for each path into a merge of paths."""

    merge: int
    """Number of the block where the paths merge."""
    ways: tuple[Tree, ...]
    """One tree for each predecessor of the block."""
    size: int = field(default=1, compare=False)
    """Number of leaves in the tree."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Tree that represents a tensor or place that the validator cannot follow."""

    reason: str


@dataclass(frozen=True, slots=True)
class At:
    """A tensor and its place."""

    tensor: int
    """Index of the tensor among the values."""
    place: Place | None


@dataclass(frozen=True, slots=True)
class Gap:
    """Distance between the starts of an output and an operand that overlap."""

    bytes: int
    """Bytes from the start of the output to the start of the operand."""
    same: bool
    """True if output and operand are known to have the same address, size and shape."""


Tree: TypeAlias = Choice | Unknown | At | Gap | int | Place | None
"""Tree with tensors, places or distances as leaves. The branches that the method takes select a leaf."""
Number_: TypeAlias = tuple[object, ...]
"""Number as part of a key: ``('i', Number)`` for an integer, ``('s', symbol)`` for any other type."""
Shadow: TypeAlias = tuple[tuple[object, ...], Dims, Content]
"""Type, sizes and content of a value that may refer to one of several tensors."""

_MOST_LEAVES = 256
"""Maximum number of leaves of a tree. A larger tree becomes unknown."""
MEMORY, NUMBER, DIMS, REFERENCE, PLACE = range(5)
"""Kinds of log entries."""
Entry: TypeAlias = tuple[int, ...]
"""Changed fact as ``(kind, side, value)``; for memory, ``(MEMORY, side, space, start, end)``."""


class Log:
    """Log of the changes to a state since the parent log. The first log has no parent."""

    __slots__ = ("depth", "entries", "parent")

    def __init__(self, parent: Log | None) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.entries: list[Entry] = []


_Item = TypeVar("_Item")


class Table(Generic[_Item]):
    """Facts about values. Copies share their common part, which makes copying fast."""

    __slots__ = ("_below", "_own")

    def __init__(self, own: dict[int, _Item] | None = None, below: Table[_Item] | None = None) -> None:
        self._own: dict[int, _Item] = own or {}
        self._below = below

    def get(self, value: int, default: _Item | None = None) -> _Item | None:
        """Return the fact about a value, or ``default`` if the table has no such fact."""
        table: Table[_Item] | None = self
        while table is not None:
            if value in table._own:
                return table._own[value]
            table = table._below
        return default

    def __setitem__(self, value: int, item: _Item) -> None:
        self._own[value] = item

    def items(self) -> ItemsView[int, _Item]:
        """Return all values that have facts, each with its fact."""
        return {**dict(self._below.items() if self._below else ()), **self._own}.items()

    def copy(self) -> Table[_Item]:
        """Return a copy that shares unchanged parts with this table."""
        if self._own:
            below = Table(self._own, self._below)
            # Each table has at least twice as many values as the one above it, so there are few tables.
            while below._below and 2 * len(below._own) > len(below._below._own):
                below = Table({**below._below._own, **below._own}, below._below._below)
            self._own, self._below = {}, below
        return Table(None, self._below)


class State:
    """State of both programs at one point. The first item of each pair belongs to the program before the link."""

    __slots__ = ("counts", "dims", "log", "memory", "numbers", "places", "references", "shadows")

    def __init__(self) -> None:
        self.memory: tuple[dict[int, Memory], dict[int, Memory]] = ({}, {})
        self.numbers: tuple[Table[Number_], Table[Number_]] = (Table(), Table())
        """Maps a value to its number, if an instruction has set that number."""
        self.dims: tuple[Table[Dims], Table[Dims]] = (Table(), Table())
        """Maps a dynamic tensor to its sizes, if an instruction has set them."""
        self.references: tuple[Table[Tree], Table[Tree]] = (Table(), Table())
        """Maps a value to the tensor to which it now refers, if a move has set the value."""
        self.places: tuple[Table[Tree], Table[Tree]] = (Table(), Table())
        """Maps a tensor to its current place, if a view has redirected the tensor."""
        self.shadows: tuple[dict[int, Shadow], dict[int, Shadow]] = ({}, {})
        """Maps a value to its content, if the value refers to a different tensor in each iteration of a loop."""
        self.counts = Counts()
        self.log = Log(None)

    def copy(self) -> State:
        """Return a copy. Later changes of the two states are logged separately."""
        found = State()
        found.memory = tuple({space: item.copy() for space, item in side.items()} for side in self.memory)  # type: ignore[assignment]
        for name in ("numbers", "dims", "references", "places", "shadows"):
            setattr(found, name, tuple(side.copy() for side in getattr(self, name)))
        found.counts = self.counts.copy()
        found.log = Log(self.log)
        self.log = Log(self.log)
        return found

    def table(self, kind: int, side: int) -> Table[object]:
        """Return the table of one program for a kind of log entry."""
        return (self.numbers, self.dims, self.references, self.places)[kind - 1][side]  # type: ignore[return-value]


def changes(states: Iterable[State]) -> tuple[Log | None, list[Entry]]:
    """Return the last log that all these states share, and all changes in any of the states since that log."""
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
    """Return the changes of a state since ``log``, which must be one of the state's logs."""
    entries: dict[Entry, None] = {}
    at: Log | None = state.log
    while at is not None and at is not log:
        entries.update(dict.fromkeys(at.entries))
        at = at.parent
    return list(entries)


def each_leaf(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Apply a function to each leaf of a tree. Return the new tree."""
    if not isinstance(tree, Choice):
        return change(tree)
    return choice(tree.merge, tuple(each_leaf(way, change) for way in tree.ways))


def choice(merge: int, ways: tuple[Tree, ...]) -> Tree:
    """Return a choice between trees. If all trees are equal, return that tree."""
    if all(way == ways[0] for way in ways):
        return ways[0]
    size = sum(way.size if isinstance(way, Choice) else 1 for way in ways)
    if size > _MOST_LEAVES:
        return Unknown("the tensor to which a value refers depends on too many conditions")
    return Choice(merge, ways, size)


def leaves(tree: Tree) -> list[Tree]:
    """Return all leaves of a tree."""
    if not isinstance(tree, Choice):
        return [tree]
    return [leaf for way in tree.ways for leaf in leaves(way)]


def mentions(tree: Tree, merges: set[int]) -> bool:
    """Return whether a tree depends on one of these merges."""
    if not isinstance(tree, Choice):
        return False
    return tree.merge in merges or any(mentions(way, merges) for way in tree.ways)


def on_way(tree: Tree, merge: int, way: int) -> Tree:
    """Return the part of a tree that applies if ``merge`` was last entered on its incoming edge number ``way``."""
    if not isinstance(tree, Choice):
        return tree
    if tree.merge == merge:
        return on_way(tree.ways[way], merge, way)
    return choice(tree.merge, tuple(on_way(item, merge, way) for item in tree.ways))
