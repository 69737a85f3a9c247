"""State at the head of a loop, where paths come from outside the loop and from the previous iteration.

At first, all content is assumed to stay the same as before the loop. Content that an iteration changes is called
varying. One symbol then represents this content in every iteration. Varying contents of either program with the same
symbol form a *class*. All contents in a class are assumed to be equal. At first, contents that are equal outside the
loop form one class. If the members of a class have different contents after an iteration, the class is split. When an
iteration changes no class, all assumed equalities hold in every iteration.

A *way* is a path to the head: from outside, or from the end of an iteration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import cast

from etdev.validator.agree import Agreement
from etdev.validator.domain import numbers
from etdev.validator.domain.join import (
    OF_OLDER_ROUND,
    Slot,
    dims_in,
    held_in,
    join_trees,
    memory_in,
    memory_ranges,
    number_in,
    pieces,
    symbol_of,
    tree_in,
    without_overlaps,
)
from etdev.validator.domain.memory import NOTHING, Cell, Content, Memory, Run, Valid, aligned, joined, shifted, size
from etdev.validator.domain.numbers import Dims
from etdev.validator.domain.state import (
    DIMS,
    MEMORY,
    NUMBER,
    PLACE,
    REFERENCE,
    Choice,
    Log,
    Number_,
    Shadow,
    State,
    Tree,
    Unknown,
    changes_since,
)
from etdev.validator.domain.symbols import LOOP, OTHER
from etdev.validator.machine import Machine

_NONE = -1
"""Placeholder symbol for content that does not vary."""
_SHADOWS = -(1 << 40)
"""Base of the space numbers for shadows (see ``Loop.shadows``). A space is this constant minus the value index."""
_MOST_ROUNDS = 30
"""Number of iterations after which the validator no longer refines the extents of dynamic writes."""
Key = tuple[int, Hashable]
"""Symbol of a class, and the content from each path to the head. Contents with equal keys stay in one class."""
_Pieces = tuple[tuple[int, int], ...]
"""Content from each path to the head of the loop, as ``(symbol, offset)``."""
SHADOW = 5
"""Value of ``kind`` for a :data:`Variable` that is a size of a shadow (see ``Loop.shadows``)."""
Variable = tuple[int, int, int, int]
"""Varying number, or varying size of one dimension, as ``(kind, side, value, dimension)``."""


_Found = tuple[Slot, int, int, int, tuple[Valid, Valid], Key]
"""Piece of varying content.

In order: program and space, first byte, end byte (exclusive), offset in the symbol, two extents, and the key. The first
extent is from the current iteration. The second extent was assumed before this iteration.
"""


@dataclass(slots=True)
class Loop:
    """State at the head of a loop, reduced to facts that may differ between iterations."""

    merge: int
    """Index of the block at the head of the loop."""
    merges: frozenset[int]
    """Indices of all blocks inside the loop where paths merge."""
    bytes: dict[Slot, Memory] = field(default_factory=dict)
    """Maps ``(side, space)`` to memory. Varying bytes have their symbols there, and other bytes have :data:`_NONE`."""
    values: dict[Variable, int] = field(default_factory=dict)
    """Maps each varying number or size to its symbol."""
    trees: dict[tuple[int, int, int], Tree] = field(default_factory=dict)
    """Maps ``(kind, side, value)`` to a varying tree: the tensor to which the value refers, or the tensor's place."""
    shadows: dict[tuple[int, int], Shadow] = field(default_factory=dict)
    """Maps ``(side, value)`` to the content of a value that refers to a different tensor in each iteration."""
    members: dict[int, frozenset[int]] = field(default_factory=dict)
    """Maps the symbol of a class to the symbols of all contents in the class, on all paths to the head."""
    _count: int = 0
    _rounds: int = 0
    _ways: dict[Hashable, int] = field(default_factory=dict)
    """Maps tuples of numbers to symbols of varying numbers. A tuple has one number for each path to the head."""
    _held: dict[tuple[int, int], list[Shadow]] = field(default_factory=dict)
    """Maps ``(side, value)`` to the value's contents, one for each path to the head.

    Only values that may refer to one of several tensors are in the map.
    """
    _unvarying: dict[tuple[int, int], list[tuple[int, Run]]] = field(default_factory=dict)
    """Maps ``(side, value)`` to the pieces of content in ``_held`` that do not vary, as ``(first byte, run)``."""
    _head: Log = field(default_factory=lambda: Log(None))

    def enter(self, machine: Machine, outside: State) -> State:
        """Return the state at the head. Symbols replace content that varies. ``outside`` stays unchanged."""
        state = outside.copy()
        head = Log(outside.log)
        for slot, varying in self.bytes.items():
            memory = memory_in(machine, state, *slot)
            for first, last, cell in list(_varying(varying)):
                memory.write(first, last, cell)
                head.entries.append((MEMORY, *slot, first, last))
        for (kind, side, value, dim), symbol in self.values.items():
            if kind == SHADOW:
                continue
            if kind == NUMBER:
                whole = number_in(machine, state, side, value)[0] == "i"
                state.numbers[side][value] = ("i", numbers.unknown(symbol)) if whole else ("s", symbol)
            else:
                sizes = list(dims_in(machine, state, side, value))
                sizes[dim] = numbers.unknown(symbol)
                state.dims[side][value] = tuple(sizes)
            head.entries.append((kind, side, value))
        for (kind, side, value), tree in self.trees.items():
            state.table(kind, side)[value] = tree
            head.entries.append((kind, side, value))
        for (side, value), shadow in self.shadows.items():
            state.shadows[side][value] = shadow
        state.counts.forget(machine.merges, self.merges)
        self._head = head
        state.log = Log(head)
        return state

    def settle(self, machine: Machine, agreement: Agreement, outside: State, rounds: Sequence[State]) -> bool:
        """Update the assumptions from the states at the ends of iterations. Return True if no assumption changed."""
        states = [outside, *rounds]
        found = list(dict.fromkeys(entry for state in rounds for entry in changes_since(state, self._head)))
        settled = self._settle_trees(states, [item for item in found if item[0] in (REFERENCE, PLACE)])
        self._find_held(machine, states)
        settled &= self._settle_numbers(machine, states, [item for item in found if item[0] in (NUMBER, DIMS)])
        settled &= self._settle_bytes(machine, agreement, states, found)
        self._rounds += 1
        return settled

    def _new(self, machine: Machine) -> int:
        self._count += 1
        return machine.symbols.number((LOOP, self.merge, self._count), machine.merges.bit(self.merge))

    def _split(self, machine: Machine, keys: Sequence[Key]) -> tuple[dict[Key, int], bool]:
        """Return a map from each key to a symbol, and True if all classes stayed the same.

        A class whose members all have the same key keeps its symbol.
        """
        of_class: dict[int, set[Key]] = defaultdict(set)
        for key in keys:
            of_class[key[0]].add(key)
        symbols: dict[Key, int] = {}
        settled = True
        for key in keys:
            if key not in symbols:
                alone = key[0] != _NONE and len(of_class[key[0]]) == 1
                symbols[key] = key[0] if alone else self._new(machine)
                settled &= alone
        return symbols, settled

    # Bytes

    def _settle_bytes(
        self,
        machine: Machine,
        agreement: Agreement,
        states: Sequence[State],
        entries: Sequence[tuple[int, ...]],
    ) -> bool:
        ranges = memory_ranges(entries)
        for slot, varying in self.bytes.items():
            old = [(first, last) for first, last, _ in _varying(varying)]
            ranges[slot] = without_overlaps([*ranges.get(slot, []), *old])
        settled = True
        found = self._shadow_pieces(machine, agreement)
        for slot, some in ranges.items():
            memories = [memory_in(machine, state, *slot) for state in states]
            known = self.bytes.get(slot, Memory.filled(_NONE))
            for start, end in some:
                for first, last, cells in pieces(agreement, [*memories, known], slot[0], start, end):
                    piece = _piece(first, cells)
                    if piece is not None:
                        offset, key = piece
                        valid = self._valid(machine, [cell[2] for cell in cells[:-1]])
                        if valid == NOTHING or machine.merges.partly.intersection(cell[0] for cell in cells[:-1]):
                            extents = tuple(shifted(cell[2], -cells[0][1]) for cell in cells[:-1])
                            valid, key = NOTHING, (key[0], ("bytes", cast("tuple[str, _Pieces]", key[1])[1], extents))
                        found.append((slot, first, last, offset, (valid, cells[-1][2]), key))
        machine.spend(len(found) + len(entries))
        symbols, same = self._split(machine, [item[-1] for item in found])
        settled &= same
        self.members = {}
        self.bytes = {}
        runs = {name: list(same) for name, same in self._unvarying.items()}
        for slot, first, last, offset, (valid, before), key in found:
            ways = frozenset(symbol for symbol, _ in cast("tuple[str, _Pieces]", key[1])[1]) - {symbols[key]}
            self.members[symbols[key]] = self.members.get(symbols[key], frozenset()) | ways
            if slot[1] <= _SHADOWS:
                runs[slot[0], _SHADOWS - slot[1]].append((first, (symbols[key], offset, last - first)))
                continue
            now = self._extent(machine, symbols[key], first - offset) if valid == NOTHING else valid
            settled &= now == before
            memory = self.bytes.setdefault(slot, Memory.filled(_NONE))
            memory.write(first, last, (symbols[key], first - offset, now))
        shadows = {
            name: (held[0][0], self._shadow_dims(*name), joined(run for _, run in sorted(runs[name])))
            for name, held in self._held.items()
        }
        settled &= shadows == self.shadows  # Content that does not vary must be unchanged, too.
        self.shadows = shadows
        return settled

    def _find_held(self, machine: Machine, states: Sequence[State]) -> None:
        """For each value that may refer to one of several tensors, find its content on each path to the head."""
        self._held = {}
        outside = states[0]
        for side, facts in enumerate(machine.facts):
            for value in sorted(facts.roving):
                trees = [
                    self.trees.get((kind, side, value), outside.table(kind, side).get(value))
                    for kind in (REFERENCE, PLACE)
                ]
                if any(isinstance(tree, Choice) for tree in trees) and value in facts.tensors:
                    held = _held(machine, states, side, value)
                    if held is not None:
                        self._held[side, value] = held

    def _shadow_pieces(self, machine: Machine, agreement: Agreement) -> list[_Found]:
        found: list[_Found] = []
        self._unvarying = {name: [] for name in self._held}
        for (side, value), held in self._held.items():
            count = size(held[0][2])
            known = self.shadows.get((side, value))
            old: Content = known[2] if known is not None and size(known[2]) == count else ((_NONE, 0, count),)
            contents = [agreement.canonical(item[2]) if side else item[2] for item in held]
            at = 0
            for length, (*ways, (known_symbol, _)) in aligned([*contents, old]):
                base = ways[0][1]
                varies = (
                    machine.symbols.keys[known_symbol][:2] == (LOOP, self.merge) if known_symbol != _NONE else False
                )
                if varies or any(way != ways[0] for way in ways):
                    key = tuple((symbol, offset - base) for symbol, offset in ways)
                    slot = side, _SHADOWS - value
                    symbol = known_symbol if varies else _NONE
                    found.append((slot, at, at + length, base, (None, None), (symbol, ("value", key))))
                else:
                    self._unvarying[side, value].append((at, (*ways[0], length)))
                at += length
        return found

    def _shadow_dims(self, side: int, value: int) -> Dims:
        """Return the sizes of a value's shadow at the head. Varying sizes are unknowns."""
        first = self._held[side, value][0][1]
        return tuple(
            numbers.unknown(self.values[SHADOW, side, value, dim])
            if (SHADOW, side, value, dim) in self.values
            else known
            for dim, known in enumerate(first)
        )

    # Numbers and sizes

    def _settle_numbers(self, machine: Machine, states: Sequence[State], entries: Sequence[tuple[int, ...]]) -> bool:
        names = dict.fromkeys(self.values)
        for kind, side, value in sorted(entries):
            dims = range(len(machine.facts[side].tensors[value].sizes)) if kind == DIMS else range(1)
            names.update(((kind, side, value, dim), None) for dim in dims)
        for (side, value), held in self._held.items():
            names.update(((SHADOW, side, value, dim), None) for dim in range(len(held[0][1])))
        keys: dict[Variable, Key] = {}
        for name in names:
            if name[0] == SHADOW:
                if name[1:3] not in self._held:
                    continue
                ways: tuple[Hashable, ...] = tuple(item[1][name[3]] for item in self._held[name[1:3]])
            else:
                ways = tuple(_number(machine, state, name) for state in states)
            old = self.values.get(name, _NONE)
            if old != _NONE or any(way != ways[0] for way in ways):
                keys[name] = old, ways
        symbols, settled = self._split(machine, list(keys.values()))
        self.values = {name: symbols[key] for name, key in keys.items()}
        self._ways = {key[1]: symbol for key, symbol in symbols.items()}
        return settled

    def _valid(self, machine: Machine, ways: Sequence[Valid]) -> Valid:
        """Return the extent of bytes at the head, given the extent of these bytes on each path to the head."""
        some = [way for way in ways if way is not None]
        if not some:
            return None
        if self._rounds > _MOST_ROUNDS:
            return NOTHING
        if all(way == some[0] for way in some) and not machine.merges.mentions(some[0][1], self.merges):
            return some[0]
        forms = {(way[0], len(way[1]), way[2]) for way in some}
        if len(some) < len(ways) or len(forms) > 1:
            return NOTHING
        start, _, itemsize = some[0]
        dims: list[numbers.Number] = []
        for sizes in zip(*(way[1] for way in some), strict=True):
            symbol = self._ways.get(sizes)
            if all(item == sizes[0] for item in sizes):
                dims.append(sizes[0])
            elif symbol is None:
                return NOTHING
            else:
                dims.append(numbers.unknown(symbol))
        return start, tuple(dims), itemsize

    def _extent(self, machine: Machine, symbol: int, start: int) -> Valid:
        """Return a symbolic extent for bytes whose extents differ between paths. Each class has one such extent."""
        if self._rounds > _MOST_ROUNDS:
            return NOTHING
        extent = machine.symbols.number((OTHER, "extent", symbol), machine.merges.bit(self.merge))
        return start, (numbers.unknown(extent),), 1

    # References

    def _settle_trees(self, states: Sequence[State], entries: Sequence[tuple[int, ...]]) -> bool:
        settled = True
        for name in dict.fromkeys([*self.trees, *(cast("tuple[int, int, int]", item) for item in entries)]):
            outside, *rounds = (tree_in(state, *name) for state in states)
            known = self.trees.get(name)
            if isinstance(known, Unknown) or (known is None and all(tree == outside for tree in rounds)):
                continue
            if known is not None and any(tree == known for tree in rounds):
                now: Tree = Unknown(OF_OLDER_ROUND)
            else:
                now = join_trees(self.merge, [outside, *rounds])
            settled &= now == known
            self.trees[name] = now
        return settled


def _held(machine: Machine, states: Sequence[State], side: int, value: int) -> list[Shadow] | None:
    """Return the content of a value in each state. Return None if the kind or the number of bytes differs."""
    found = held_in(machine, states, side, value)
    if found is None:
        return None
    if len({len(item[1]) for item in found}) > 1:  # Different ranks: treat all sizes as one.
        found = [(kind, cast(Dims, (dims,)), content) for kind, dims, content in found]
    return found if len({(item[0], size(item[2])) for item in found}) == 1 else None


def _varying(memory: Memory) -> list[tuple[int, int, Cell]]:
    return [piece for piece in memory.pieces(0, memory.starts[-1]) if piece[2][0] != _NONE]


def _piece(first: int, cells: Sequence[Cell]) -> tuple[int, Key] | None:
    """Return the offset and the key of bytes that vary, or None if the bytes do not vary.

    ``cells`` contains the cell of the path from outside, then a cell for each other path to the head. The last cell
    contains the symbol of the bytes' class.
    """
    *ways, known = cells
    base = first - ways[0][1]
    offsets = tuple((cell[0], first - cell[1] - base) for cell in ways)
    # On a way on which all bytes are written, the smaller extent from outside is correct, too.
    if known[0] == _NONE and len(set(offsets)) == 1 and {cell[2] for cell in ways} <= {None, ways[0][2]}:
        return None
    return base, (known[0], ("bytes", offsets))


def _number(machine: Machine, state: State, name: Variable) -> Hashable:
    kind, side, value, dim = name
    if kind == NUMBER:
        found: Number_ = number_in(machine, state, side, value)
        return found if found[0] == "i" else symbol_of(machine, found)
    sizes: Dims = dims_in(machine, state, side, value)
    return sizes[dim] if dim < len(sizes) else _NONE  # A move may have set a tensor of fewer dimensions.
