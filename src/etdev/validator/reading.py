"""Readers of a value's symbolic content, sizes and location at the current point of execution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from etdev.program import model as m
from etdev.validator.domain import numbers
from etdev.validator.domain.memory import Content, Memory, Run, Valid, joined, size
from etdev.validator.domain.merge import Guards, Merges
from etdev.validator.domain.numbers import Dims, Number
from etdev.validator.domain.state import (
    At,
    Choice,
    Number_,
    State,
    Tree,
    Unknown,
    choice,
    each_leaf,
    on_way,
)
from etdev.validator.domain.symbols import INITIAL, OTHER, Symbols
from etdev.validator.facts import CONSTANT, Facts, Place
from etdev.validator.semantics.operators import Act

Part: TypeAlias = tuple[object, ...]
"""Symbolic operand. For a tensor: ``(kind, sizes, content)``. Otherwise: a tag such as ``"i"``, and the content."""
Kind: TypeAlias = tuple[object, ...]
"""Element type and order of dimensions in memory."""

_LISTS = (m.IntList, m.TensorList, m.OptionalTensorList)


_MOST_STEPS = 10_000_000
"""Limit on executed instructions and merged pieces of memory, over all iterations of loops."""


class NotFollowedError(Exception):
    """Error for a method that the validator cannot follow. The message is the reason."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Plan for reading an operand that never changes."""

    part: Part


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Plan for reading a static tensor with a fixed location."""

    kind: Kind
    sizes: tuple[int, ...]
    space: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Plan for reading a tensor that is dynamic or has no fixed location."""

    value: int


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Plan for reading only the sizes of a tensor."""

    value: int


@dataclass(frozen=True, slots=True)
class _Variable:
    """Plan for reading a number that instructions set."""

    value: int


@dataclass(frozen=True, slots=True)
class _Items:
    """Plan for reading a list, item by item."""

    items: tuple[_Reader, ...]


_Reader: TypeAlias = _Known | _Fixed | _Tensor | _Sizes | _Variable | _Items
"""Plan for reading an operand. A plan is made once and used each time the instruction is executed."""


class StateReader:
    """Reader of both programs' states at the current point of execution."""

    def __init__(
        self,
        symbols: Symbols,
        facts: tuple[Facts, Facts],
        merges: Merges,
        ways: Mapping[int, int],
        canonical: Callable[[Content], Content],
    ) -> None:
        """Start with an empty state.

        ``ways`` maps each block where paths merge to its number of incoming paths. ``canonical`` takes content of
        the linked program. It returns content before the link that is known to have the same bytes. Without such
        content, it returns its argument.
        """
        self.symbols = symbols
        self.facts = facts
        self.merges = merges
        self.state = State()
        self._canonical = canonical
        self.pairs: dict[int, int] = {}
        """Maps a value after the link to a value before the link. They are assumed to be equal when a call begins."""
        self.left_numbers: set[tuple[int, int]] = set()
        """Numbers that a call reads before any instruction sets them, as ``(side, value)``."""
        self.left_dims: set[tuple[int, int]] = set()
        """Dynamic tensors whose sizes a call reads before any instruction sets them, as ``(side, value)``."""
        self._ways = ways
        self._spent = 0
        self._plans: tuple[dict[int, list[_Reader]], ...] = ({}, {})

    def spend(self, steps: int) -> None:
        """Count ``steps`` of work. Raise :class:`NotFollowedError` if the total exceeds the limit."""
        self._spent += steps
        if self._spent > _MOST_STEPS:
            raise NotFollowedError(f"the validator needs more than {_MOST_STEPS:,} steps to follow the method")

    # Operands

    def operands(self, side: int, position: int) -> list[Part]:
        """Return the operands of an instruction."""
        plan = self._plans[side].get(position)
        if plan is None:
            code = self.facts[side].code[position]
            sizes = self.facts[side].tensors if code.act is Act.SIZE else ()
            plan = [_Sizes(value) if value in sizes else self._planned(side, value) for value in code.reads]
            self._plans[side][position] = plan
        return [self._read(side, item) for item in plan]

    def value(self, side: int, value: int) -> Part:
        """Return a value as an operand."""
        return self._read(side, self._planned(side, value))

    def _planned(self, side: int, index: int) -> _Reader:
        """Return the plan for reading a value."""
        facts = self.facts[side]
        if index < 0:
            return _Known(("none",))
        if index in facts.tensors:
            return self._planned_tensor(side, index)
        if index in facts.variable:
            return _Variable(index)
        found = facts.plan.values[index]
        if isinstance(found, _LISTS):
            # An invalid file may have a list in a list, even in itself, or a tensor in a list of numbers. No
            # instruction can read such an item.
            strange = (*_LISTS, m.Tensor) if isinstance(found, m.IntList) else _LISTS
            odd = [item >= 0 and isinstance(facts.plan.values[item], strange) for item in found.items]
            items = tuple(
                _Known(("list",)) if unread else self._planned(side, item)
                for item, unread in zip(found.items, odd, strict=True)
            )
            known = tuple(item.part for item in items if isinstance(item, _Known))
            return _Known(("list", *known)) if len(known) == len(items) else _Items(items)
        return _Known(_literal(found))

    def _planned_tensor(self, side: int, index: int) -> _Reader:
        facts = self.facts[side]
        tensor = facts.tensors[index]
        if index in facts.roving or tensor.dynamic or tensor.place is None:
            return _Tensor(index)
        space, start = tensor.place
        if not tensor.nbytes:
            return _Known((tensor.kind, tensor.sizes, ()))
        if space == CONSTANT:
            return _Known((tensor.kind, tensor.sizes, ((*facts.constants[start], tensor.nbytes),)))
        return _Fixed(tensor.kind, tensor.sizes, space, start, tensor.end)

    def _read(self, side: int, item: _Reader) -> Part:
        match item:
            case _Known():
                return item.part
            case _Fixed():
                return item.kind, item.sizes, self._read_fixed(side, item)
            case _Tensor():
                return self.tensor(side, item.value)
            case _Sizes():
                kind, dims, _ = self._part(side, item.value, sizes_only=True)
                return kind, dims, ()
            case _Variable():
                return self.number(side, item.value)
            case _Items():
                return ("list", *(self._read(side, each) for each in item.items))

    def _read_fixed(self, side: int, item: _Fixed) -> Content:
        memory = self.memory(side, item.space)
        length = item.end - item.start
        _, end, (symbol, shift, valid) = next(memory.pieces(item.start, item.end))
        if end == item.end and valid is None and symbol not in self.merges.partly:
            return ((symbol, item.start - shift, length),)
        return self.stored(side, (item.space, item.start), length, length)

    def number(self, side: int, value: int) -> Number_:
        """Return a number that instructions set."""
        found = self.state.numbers[side].get(value)
        if found is not None:
            return found
        self.left_numbers.add((side, value))
        literal = self.facts[side].plan.values[value]
        origin = (0, value) if side == 0 else (0, self.pairs[value]) if value in self.pairs else (1, value)
        symbol = self.symbols.number((INITIAL, "number", *origin))
        return ("i", numbers.unknown(symbol)) if isinstance(literal, m.Int) else ("s", symbol)

    def tensor(self, side: int, value: int) -> Part:
        """Return a tensor as an operand, at whichever place the tensor is located."""
        return self._part(side, value)

    def _part(self, side: int, value: int, *, sizes_only: bool = False) -> tuple[Kind, Dims, Content]:
        found = self.state.shadows[side].get(value)
        return found or self._gather(side, self.located(side, value), (), sizes_only=sizes_only)

    def held(self, side: int, value: int) -> Part:
        """Return a tensor as an operand with its maximum size. The content includes bytes past the current size."""
        tensor = self.facts[side].tensors[value]
        at = self.located(side, value)
        if not isinstance(at, At) or at.place is None:
            raise NotFollowedError(f"an instruction appends rows to value {value}, which may be one of several tensors")
        return tensor.kind, tensor.sizes, self.stored(side, at.place, tensor.nbytes, None)

    def held_anywhere(self, side: int, value: int) -> Content:
        """Return the content of all places where a tensor may be located, one place after another."""
        return tuple(run for _, content in self.contents(side, value) for run in content)

    def contents(self, side: int, value: int) -> list[tuple[At, Content]]:
        """Return ``(tensor and place, content)`` for each tensor to which a value may refer."""
        found: list[tuple[At, Content]] = []
        waiting: list[tuple[Tree, Guards]] = [(self.located(side, value), ())]
        while waiting:
            tree, guards = waiting.pop()
            if isinstance(tree, Choice):
                waiting += [(way, (*guards, (tree.merge, number))) for number, way in enumerate(tree.ways)]
                continue
            at = only_leaf(tree)
            content = self._content(side, at, self.dims(side, at.tensor), guards)
            found.append((at, self.merges.content_on(content, guards)))
        return found

    def tensor_dims(self, side: int, value: int) -> Dims:
        """Return the sizes of a tensor, at whichever place the tensor is located."""
        return self._gather(side, self.located(side, value), (), sizes_only=True)[1]

    def _gather(self, side: int, tree: Tree, guards: Guards, *, sizes_only: bool = False) -> tuple[Kind, Dims, Content]:
        if isinstance(tree, Choice):
            ways = [
                self._gather(side, way, (*guards, (tree.merge, number)), sizes_only=sizes_only)
                for number, way in enumerate(tree.ways)
            ]
            if len({(kind, size(content)) for kind, _, content in ways}) > 1:
                raise NotFollowedError("a value may be one of several tensors that differ in type or size")
            dims = self.merges.dims(tree.merge, [dims for _, dims, _ in ways])
            found = self.merges.content(tree.merge, [content for _, _, content in ways], reached=True)
            return ways[0][0], dims, found
        at = only_leaf(tree)
        dims = self.dims(side, at.tensor)
        content = () if sizes_only else self._content(side, at, dims, guards)
        kind = self.facts[side].tensors[at.tensor].kind
        return kind, self.merges.dims_on(dims, guards), self.merges.content_on(content, guards)

    def _content(self, side: int, at: At, dims: Dims, guards: Guards) -> Content:
        tensor, place = self.facts[side].tensors[at.tensor], at.place
        length = numbers.multiply(numbers.product(dims), tensor.itemsize)
        most = length if isinstance(length, int) else tensor.nbytes
        if not most:
            return ()
        if place is None:
            return ((self.symbols.number((OTHER, "no address", side)), 0, most),)
        if place[0] == CONSTANT:
            return ((*self.facts[side].constants[place[1]], most),)
        return self._known(side, self.stored(side, place, most, length, guards))

    def _known(self, side: int, content: Content) -> Content:
        """Return the content. Replace bytes of the linked program by equal bytes before the link, where known."""
        return self._canonical(content) if side else content

    def stored(self, side: int, place: Place, most: int, length: Number | None, guards: Guards = ()) -> Content:
        """Return ``most`` bytes at a place, as seen by an instruction that reads the first ``length`` bytes.

        ``length`` may be symbolic. If the last write did not cover the first ``length`` bytes, a symbol for unknown
        bytes replaces the written content. If ``length`` is None, do not check the extents of writes.
        """
        space, start = place
        found: list[Run] = []
        on_ways = None if length is None else self.merges.number_on(length, guards)
        for first, end, (symbol, shift, valid) in self.memory(side, space).pieces(start, start + most):
            piece = symbol, first - shift
            if length is not None and not self.covers(valid, start, length, guards):
                piece = self.merges.behind(side, symbol, shift, valid, length), first - shift
            elif on_ways is not None and symbol in self.merges.partly:
                for merge, way in guards:
                    piece = self.merges.piece_on(piece, merge, way)
                piece = self.merges.fresh(side, piece, piece[1] - (first - start), on_ways, self.covers)
            found.append((*piece, end - first))
        return joined(found)

    def covers(self, valid: Valid, start: int, length: Number, guards: Guards = ()) -> bool:
        """Return whether a write with the extent ``valid`` covers a read, on the paths described by ``guards``."""
        if valid is None:
            return True
        begin, dims, itemsize = valid
        count = numbers.product(dims)
        wanted = numbers.subtract(numbers.add(start, length), begin)
        rest = numbers.subtract(numbers.multiply(count, itemsize), wanted)
        if isinstance(rest, int):
            return rest >= 0
        elements = numbers.divide(wanted, itemsize)
        if elements is None:
            return False
        return self.state.counts.reaches(self.merges, count, elements, guards)

    def memory(self, side: int, space: int) -> Memory:
        """Return the symbolic memory of a space. Create the memory if necessary."""
        spaces = self.state.memory[side]
        found = spaces.get(space)
        if found is None:
            # Memory of the caller is the same in both programs.
            origin = ("caller", space) if space < 0 and space % 3 else (side, space)
            found = spaces[space] = Memory.filled(self.symbols.number((INITIAL, *origin)))
        return found

    # Locations and sizes of tensors

    def located(self, side: int, value: int) -> Tree:
        """Return the tensor to which a value refers, and its location, as a tree with leaves of :class:`At`."""
        facts = self.facts[side]
        if value not in facts.roving:
            return At(value, facts.tensors[value].place)
        tensor: Tree = value
        if value in facts.moved:
            tensor = self.state.references[side].get(value, Unknown(f"value {value} is used before a move sets it"))
        return self._located(side, tensor, ())

    def _located(self, side: int, tensor: Tree, guards: Guards) -> Tree:
        if isinstance(tensor, Choice):
            ways = (
                self._located(side, way, (*guards, (tensor.merge, number))) for number, way in enumerate(tensor.ways)
            )
            return choice(tensor.merge, tuple(ways))
        if not isinstance(tensor, int):
            return tensor
        facts = self.facts[side]
        place: Tree = facts.tensors[tensor].place
        if tensor in facts.viewed:
            lost = Unknown(f"value {tensor} is used before a view sets it")
            place = self.state.places[side].get(tensor, lost)
            for merge, way in guards:
                place = on_way(place, merge, way)
        return each_leaf(place, lambda at: at if isinstance(at, Unknown) else At(tensor, cast("Place | None", at)))

    def dims(self, side: int, value: int) -> Dims:
        """Return the sizes of a tensor."""
        facts = self.facts[side]
        tensor = facts.tensors[value]
        if not tensor.dynamic:
            return tensor.sizes
        found = self.state.dims[side].get(value)
        if found is None:
            self.left_dims.add((side, value))
            origin = (0, value) if side == 0 else (0, self.pairs[value]) if value in self.pairs else (1, value)
            found = tuple(
                numbers.unknown(self.symbols.number((INITIAL, "size", *origin, dim)))
                for dim in range(len(tensor.sizes))
            )
        return found


def only_leaf(tree: Tree) -> At:
    """Return the tensor of a tree without alternatives. Raise :class:`NotFollowedError` if the tensor is unknown."""
    if isinstance(tree, Unknown):
        raise NotFollowedError(tree.reason)
    assert isinstance(tree, At)
    return tree


def _literal(value: m.Value) -> Part:
    match value:
        case m.Int():
            return ("i", value.int_val)
        case m.Bool():
            return ("b", value.bool_val)
        case m.Null():
            return ("none",)
        case _:
            return ("value", value)
