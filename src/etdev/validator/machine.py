"""Reading and writing tensors of one of the two programs, at the point where both are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from etdev.program import model as m
from etdev.validator import numbers
from etdev.validator.facts import CONSTANT, UNLIMITED, Facts, Place
from etdev.validator.memory import Content, Memory, Run, Valid, joined, overlaid, size
from etdev.validator.merge import Guards, Merges
from etdev.validator.numbers import Number
from etdev.validator.state import (
    DIMS,
    MEMORY,
    NUMBER,
    Choice,
    Dims,
    Lost,
    Number_,
    State,
    Tree,
    choice,
    each_leaf,
    leaves,
    on_way,
)
from etdev.validator.symbols import INITIAL, OTHER, Symbols

Part: TypeAlias = tuple[object, ...]
"""An operand: ``(kind, sizes, content)`` of a tensor, or a name of what else there is and its content."""
Kind: TypeAlias = tuple[object, ...]
"""Element type and order of dimensions."""

_LISTS = (m.IntList, m.TensorList, m.OptionalTensorList)


class NotFollowedError(Exception):
    """The method does what is not followed; says what."""


class Machine:
    """Two methods, with the state at the point where they are."""

    def __init__(self, symbols: Symbols, facts: tuple[Facts, Facts], merges: Merges, ways: Mapping[int, int]) -> None:
        self.symbols = symbols
        self.facts = facts
        self.merges = merges
        self.state = State()
        self.canonical: Callable[[Content], Content] = lambda content: content
        """From what the program after the link holds to the same in terms of the one before it, as far as is known."""
        self.pairs: dict[int, int] = {}
        """Value after the link → value before it that it is taken for, as to what the calls before left."""
        self.left_numbers: set[tuple[int, int]] = set()
        """``(side, value)`` of the numbers that a call finds as the one before left them."""
        self.left_dims: set[tuple[int, int]] = set()
        """``(side, value)`` of the tensors whose sizes a call finds as the one before left them."""
        self._ways = ways
        """Block → how many others lead to it."""
        self._plans: tuple[dict[int, list[tuple[object, ...]]], ...] = ({}, {})

    # Operands

    def operands(self, side: int, position: int) -> list[Part]:
        """What an instruction reads."""
        plan = self._plans[side].get(position)
        if plan is None:
            code = self.facts[side].code[position]
            plan = self._plans[side][position] = [self._planned(side, value) for value in code.reads]
        return [self._read(side, item) for item in plan]

    def value(self, side: int, value: int) -> Part:
        """What a value is."""
        return self._read(side, self._planned(side, value))

    def _planned(self, side: int, index: int) -> tuple[object, ...]:
        """How to read a value, found out once."""
        facts = self.facts[side]
        if index < 0:
            return (0, ("none",))
        if index in facts.tensors:
            return self._planned_tensor(side, index)
        if index in facts.variable:
            return (3, index)
        found = facts.plan.values[index]
        if isinstance(found, _LISTS):
            # A list in a list is in no valid program, but in files from anywhere it may be, also in itself.
            items = [
                (0, ("list",))
                if item >= 0 and isinstance(facts.plan.values[item], _LISTS)
                else self._planned(side, item)
                for item in found.items
            ]
            if all(item[0] == 0 for item in items):
                return (0, ("list", *(item[1] for item in items)))
            return (4, items)
        return (0, _literal(found))

    def _planned_tensor(self, side: int, index: int) -> tuple[object, ...]:
        facts = self.facts[side]
        tensor = facts.tensors[index]
        if index in facts.roving or tensor.dynamic or tensor.place is None:
            return (2, index)
        space, start = tensor.place
        if not tensor.nbytes:
            return (0, (tensor.kind, tensor.sizes, ()))
        if space == CONSTANT:
            return (0, (tensor.kind, tensor.sizes, ((*facts.constants[start], tensor.nbytes),)))
        return (1, tensor.kind, tensor.sizes, space, start, tensor.end)

    def _read(self, side: int, item: tuple[object, ...]) -> Part:
        how = item[0]
        if how == 0:
            return item[1]  # type: ignore[return-value]
        if how == 1:
            _, kind, sizes, space, start, end = item
            memory = self.memory(side, space)  # type: ignore[arg-type]
            index = bisect_right(memory.starts, start) - 1  # type: ignore[type-var]
            symbol, shift, valid = memory.cells[index]
            if (
                valid is None
                and symbol not in self.merges.partly
                and (index + 1 == len(memory.starts) or memory.starts[index + 1] >= end)
            ):  # type: ignore[operator]
                return kind, sizes, ((symbol, start - shift, end - start),)  # type: ignore[operator]
            return kind, sizes, self.stored(side, (space, start), end - start, end - start)  # type: ignore[operator, arg-type]
        if how == 2:
            return self.tensor(side, item[1])  # type: ignore[arg-type]
        if how == 3:
            return self.number(side, item[1])  # type: ignore[arg-type]
        return ("list", *(self._read(side, each) for each in item[1]))  # type: ignore[attr-defined]

    def number(self, side: int, value: int) -> Number_:
        """What a number is that instructions set."""
        found = self.state.numbers[side].get(value)
        if found is not None:
            return found
        self.left_numbers.add((side, value))
        literal = self.facts[side].plan.values[value]
        origin = (0, value) if side == 0 else (0, self.pairs[value]) if value in self.pairs else (1, value)
        symbol = self.symbols.number((INITIAL, "number", *origin))
        return ("i", numbers.unknown(symbol)) if isinstance(literal, m.Int) else ("s", symbol)

    def tensor(self, side: int, value: int) -> Part:
        """What a tensor is, wherever it lies."""
        return self.state.shadows[side].get(value) or self._gather(side, self.located(side, value), ())

    def held(self, side: int, value: int) -> Part:
        """What lies where a tensor is, of its largest size, whoever wrote it."""
        tensor = self.facts[side].tensors[value]
        tree = self.located(side, value)
        if isinstance(tree, Choice | Lost) or tree[1] is None:  # type: ignore[index]
            raise NotFollowedError(f"rows are put into value {value}, which may be one of several tensors")
        return tensor.kind, tensor.sizes, self.stored(side, tree[1], tensor.nbytes, None)  # type: ignore[index, arg-type]

    def tensor_dims(self, side: int, value: int) -> Dims:
        """The sizes of a tensor, wherever it lies."""
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
            return ways[0][0], dims, self.merges.content(tree.merge, [content for _, _, content in ways])
        if isinstance(tree, Lost):
            raise NotFollowedError(tree.reason)
        assert isinstance(tree, tuple)
        origin, place = tree
        dims = self.dims(side, origin)  # type: ignore[arg-type]
        content = () if sizes_only else self._content(side, origin, place, dims, guards)  # type: ignore[arg-type]
        kind = self.facts[side].tensors[origin].kind  # type: ignore[index]
        return kind, self.merges.dims_on(dims, guards), self.merges.content_on(content, guards)

    def _content(self, side: int, origin: int, place: Place | None, dims: Dims, guards: Guards) -> Content:
        tensor = self.facts[side].tensors[origin]
        length = numbers.multiply(numbers.product(dims), tensor.itemsize)
        most = length if isinstance(length, int) else tensor.nbytes
        if not most:
            return ()
        if place is None:
            return ((self.symbols.number((OTHER, "no address", side)), 0, most),)
        if place[0] == CONSTANT:
            return ((*self.facts[side].constants[place[1]], most),)
        found = self.stored(side, place, most, length, guards)
        return self.canonical(found) if side else found

    def stored(self, side: int, place: Place, most: int, length: Number | None, guards: Guards = ()) -> Content:
        """The bytes at a place, up to ``most`` of them, for a reader who reads ``length``; None takes what there is."""
        space, start = place
        found: list[Run] = []
        for first, end, (symbol, shift, valid) in self.memory(side, space).pieces(start, start + most):
            piece = symbol, first - shift
            if length is not None and not self.covers(valid, start, length, guards):
                piece = self.merges.behind(side, symbol, shift, valid, length), first - shift
            elif length is not None and symbol in self.merges.partly:
                piece = self.merges.fresh(side, piece, start - shift, length, self.covers)
            found.append((*piece, end - first))
        return joined(found)

    def covers(self, valid: Valid, start: int, length: Number, guards: Guards = ()) -> bool:
        """Is all that a reader reads among what was written, if merges were last reached on these ways?"""
        if valid is None:
            return True
        begin, dims, itemsize = valid
        count = numbers.product(dims)
        rest = numbers.subtract(numbers.add(begin, numbers.multiply(count, itemsize)), numbers.add(start, length))
        if isinstance(rest, int):
            return rest >= 0
        wanted = numbers.divide(length, itemsize)
        if begin != start or wanted is None:
            return False
        mine, theirs = (self.merges.number_on(self.state.count(item, guards), guards) for item in (wanted, count))
        return mine == theirs

    def memory(self, side: int, space: int) -> Memory:
        """The memory of a space."""
        spaces = self.state.memory[side]
        found = spaces.get(space)
        if found is None:
            # Memory of the caller's is one in both programs.
            origin = ("caller", space) if space < 0 and space % 3 else (side, space)
            found = spaces[space] = Memory.filled(self.symbols.number((INITIAL, *origin)))
        return found

    # Where tensors lie, and how large they are

    def located(self, side: int, value: int) -> Tree:
        """Which tensor a value is and where that lies: a tree of ``(value, place)``."""
        facts = self.facts[side]
        if value not in facts.roving:
            return value, facts.tensors[value].place  # type: ignore[return-value]
        tensor: Tree = value
        if value in facts.moved:
            tensor = self.state.references[side].get(value, Lost(f"value {value} is used before a move has set it"))
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
            lost = Lost(f"value {tensor} is used before a view has set it")
            place = self.state.places[side].get(tensor, lost)
            for merge, way in guards:
                place = on_way(place, merge, way)
        return each_leaf(place, lambda at: at if isinstance(at, Lost) else (tensor, at))  # type: ignore[return-value]

    def dims(self, side: int, value: int) -> Dims:
        """The sizes of a tensor."""
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

    # Writing

    def set_number(self, side: int, value: int, content: Number_) -> None:
        """Give a number another content."""
        self.state.numbers[side][value] = content
        self.state.log.entries.append((NUMBER, side, value))

    def set_dims(self, side: int, value: int, dims: Dims) -> None:
        """Give a dynamic tensor its sizes."""
        self.state.dims[side][value] = dims
        self.state.log.entries.append((DIMS, side, value))

    def write(self, side: int, value: int, dims: Dims, content: Content | None) -> None:
        """Give a tensor sizes and content, wherever it lies; ``None`` leaves the bytes as they are."""
        facts = self.facts[side]
        if value not in facts.roving:
            self._write_at(side, (value, facts.tensors[value].place), dims, content, ())
            return
        self._write_tree(side, self.located(side, value), dims, content, ())

    def _write_tree(self, side: int, tree: Tree, dims: Dims, content: Content | None, guards: Guards) -> None:
        if isinstance(tree, Choice):
            for number, way in enumerate(tree.ways):
                self._write_tree(side, way, dims, content, (*guards, (tree.merge, number)))
        elif isinstance(tree, Lost):
            raise NotFollowedError(tree.reason)
        else:
            self._write_at(side, cast("tuple[int, Place | None]", tree), dims, content, guards)

    def _write_at(
        self,
        side: int,
        at: tuple[int, Place | None],
        dims: Dims,
        content: Content | None,
        guards: Guards,
    ) -> None:
        origin, place = at
        tensor = self.facts[side].tensors[origin]
        if tensor.dynamic:
            self.set_dims(side, origin, self._dims_after(dims, self.dims(side, origin), guards) if guards else dims)
        if content is None or place is None or place[0] == CONSTANT or not tensor.nbytes:
            return
        space, start = place
        valid: Valid = None
        if tensor.dynamic:
            most = numbers.multiply(numbers.product(dims), tensor.itemsize)
            content = _cut(content, most if isinstance(most, int) else tensor.nbytes)
            valid = None if isinstance(most, int) else (start, dims, tensor.itemsize)
        length = size(content)
        if not length:
            return
        memory = self.memory(side, space)
        if guards:
            old = self.stored(side, place, length, length)
            content, valid = self._content_after(content, old, guards), None
        memory.write_content(start, content, valid)
        self.state.log.entries.append((MEMORY, side, space, start, start + length))
        if self.state.shadows[side]:
            self._change_shadows(side, space, start, content)

    def _change_shadows(self, side: int, space: int, start: int, content: Content) -> None:
        for value, (kind, dims, held) in list(self.state.shadows[side].items()):
            tree = self.located(side, value)
            if any(isinstance(leaf, Lost) for leaf in leaves(tree)):
                del self.state.shadows[side][value]
            else:
                after = self._shadow_after(tree, (), space, start, content, held)
                self.state.shadows[side][value] = kind, dims, after

    def _shadow_after(self, tree: Tree, guards: Guards, space: int, start: int, new: Content, held: Content) -> Content:
        """What a value holds after a write to some memory, if it is one of the tensors of a tree."""
        if isinstance(tree, Choice):
            ways = [
                self._shadow_after(way, (*guards, (tree.merge, number)), space, start, new, held)
                for number, way in enumerate(tree.ways)
            ]
            return held if all(way == held for way in ways) else self.merges.content(tree.merge, ways)
        _, place = cast("tuple[int, Place | None]", tree)
        if place is None or place[0] != space:
            return held
        return overlaid(held, start - place[1], self.merges.content_on(new, guards))

    def _content_after(self, new: Content, old: Content, guards: Guards) -> Content:
        """What is there after a write that happens if merges were last reached on these ways."""
        if not guards:
            return new
        (merge, taken), *rest = guards
        contents = [
            self._content_after(new, old, tuple(rest)) if way == taken else old for way in range(self._ways[merge])
        ]
        return self.merges.content(
            merge, [self.merges.content_on(item, ((merge, way),)) for way, item in enumerate(contents)]
        )

    def _dims_after(self, new: Dims, old: Dims, guards: Guards) -> Dims:
        if not guards:
            return new
        (merge, taken), *rest = guards
        found = [self._dims_after(new, old, tuple(rest)) if way == taken else old for way in range(self._ways[merge])]
        return self.merges.dims(merge, [self.merges.dims_on(item, ((merge, way),)) for way, item in enumerate(found)])


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


def _cut(content: Content, most: int) -> Content:
    found: list[Run] = []
    for symbol, offset, length in content:
        if most <= 0:
            break
        found.append((symbol, offset, min(length, most)))
        most -= length
    return tuple(found)


def whole(symbol: int, nbytes: int) -> Content:
    """All bytes of a tensor, from one symbol."""
    return ((symbol, 0, nbytes),) if nbytes else ()


def is_limited(nbytes: int) -> bool:
    """Does a tensor have a largest size?"""
    return nbytes < UNLIMITED


def numbers_of(part: Part) -> Sequence[Number]:
    """The integers of a part that is a list of them."""
    return [item[1] for item in part[1:] if isinstance(item, tuple) and item[0] == "i"]
