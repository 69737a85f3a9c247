"""Effects of an instruction on the symbolic state of one program, or of both programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from etdev.program import model as m
from etdev.validator.domain import numbers
from etdev.validator.domain.memory import Content
from etdev.validator.domain.merge import AGAIN
from etdev.validator.domain.numbers import Dims, Number
from etdev.validator.domain.state import (
    PLACE,
    REFERENCE,
    At,
    Number_,
    Tree,
    Unknown,
    each_leaf,
    leaves,
)
from etdev.validator.domain.symbols import OPERATION, OTHER, Origin
from etdev.validator.facts import Code, TensorFacts
from etdev.validator.machine import Machine, whole
from etdev.validator.reading import NotFollowedError, Part
from etdev.validator.semantics import operators as ops
from etdev.validator.semantics.movement import KEEPS_COUNT, any_integer, dims, is_tensor, joined_dims, moved
from etdev.validator.semantics.operators import Act
from etdev.validator.semantics.shapes import Broadcast, output_dims, viewed_dims

_ARITHMETIC = {
    "executorch_prim::add.Scalar": numbers.add,
    "executorch_prim::sub.Scalar": numbers.subtract,
    "executorch_prim::mul.Scalar": numbers.multiply,
}


class Results:
    """Symbolic results of one instruction in one of the programs."""

    __slots__ = ("code", "in_loop", "machine", "parts", "side", "tag")

    def __init__(
        self, machine: Machine, side: int, code: Code, parts: Sequence[Part], in_loop: bool, tag: object = None
    ) -> None:
        """Store an instruction and its operands.

        ``in_loop`` must be True for an instruction in a loop. ``tag`` must be set if the results depend on more than
        the operands. Results with different tags differ even if their operands are equal.
        """
        self.machine, self.side, self.code, self.parts = machine, side, code, parts
        self.in_loop = in_loop
        self.tag = tag

    def tensors(self) -> list[tuple[Dims, Content | None]]:
        """Return ``(sizes, content)`` for each output, then for each updated tensor.

        If a content is None, the instruction does not change the bytes.
        """
        code = self.code
        facts = self.machine.facts[self.side]
        outs = [facts.tensors[value] for value in (*code.writes, *code.updates)]
        if code.act is Act.ADD_ROW:
            return [self._with_row(outs[0])]
        found = None if code.updates or self.tag is not None else moved(code.name, self.parts, outs)
        base = self._key(outs) if found is None or any(out.dynamic for out in outs) else None
        results: list[tuple[Dims, Content | None]] = []
        for number, out in enumerate(outs):
            symbol = -1 if base is None else self._symbol(base, number, out)
            sizes = self._dims(number, out, symbol) if out.dynamic else out.sizes
            self._learn(sizes)
            if code.act is Act.RESIZE and self.tag is None:
                results.append((sizes, None))
            else:
                results.append((sizes, whole(symbol, out.nbytes) if found is None else found[number]))
        return results

    def _learn(self, sizes: Dims) -> None:
        """Record which tensors must have equal numbers of elements, because the kernel fails otherwise.

        Record this only for the program before the link, because only that program is assumed to run without errors.
        """
        if self.side:
            return
        state = self.machine.state
        if self.code.name in KEEPS_COUNT and is_tensor(self.parts[0]):
            state.counts.equate(dims(self.parts[0]), sizes)
        elif self.code.name == ops.CAT:
            for own, known in joined_dims(self.parts, sizes):
                state.counts.equate(own, known)

    def numbers(self) -> list[Number_]:
        """Return the symbolic value of each number that the instruction sets."""
        code = self.code
        plan = self.machine.facts[self.side].plan
        if code.act is Act.SIZE:
            return [self._size()]
        combine = _ARITHMETIC.get(code.name)
        if (
            combine is not None
            and all(isinstance(plan.values[value], m.Int) for value in code.args)
            and len(code.args) == 3
            and all(part[0] == "i" for part in self.parts)
        ):
            one, other = map(any_integer, self.parts)
            return [("i", combine(one, other))]
        key = (OPERATION, code.name, self.tag, *self.parts)
        results: list[Number_] = []
        for number, value in enumerate(code.sets):
            symbol = self.machine.symbols.number((*key, "number", number), self._mentioned())
            self._name(symbol, value)
            kind = plan.values[value]
            results.append(("i", numbers.unknown(symbol)) if isinstance(kind, m.Int) else ("s", symbol))
        return results

    def _size(self) -> Number_:
        sizes = dims(self.parts[0])
        if self.code.name == ops.SIZE and self.parts[1][0] == "i" and isinstance(self.parts[1][1], int):
            dim = self.parts[1][1]
            if -len(sizes) <= dim < len(sizes):
                return "i", sizes[dim]
        elif self.code.name == "aten::sym_numel":
            return "i", numbers.product(sizes)
        key = (OPERATION, self.code.name, sizes, *self.parts[1:])
        return "i", numbers.unknown(self.machine.symbols.number(key, self._mentioned()))

    def _key(self, outs: Sequence[TensorFacts]) -> tuple[object, ...]:
        kinds = tuple((out.kind, out.dynamic or out.sizes) for out in outs)
        return (OPERATION, ops.same_function(self.code.name), self.tag, kinds, *self.parts)

    def _symbol(self, key: tuple[object, ...], number: int, out: TensorFacts) -> int:
        symbol = self.machine.symbols.number((*key, number), self._mentioned())
        self._name(symbol, out.value)
        return symbol

    def _name(self, symbol: int, value: int) -> None:
        self.machine.symbols.name(symbol, Origin(self.code.position, self.code.name, value, self.side))

    def _mentioned(self) -> int:
        if not self.in_loop:
            return 0
        own = self.machine.merges.bit(AGAIN) if self.tag is not None else 0
        return own | self.machine.symbols.mentioned(_symbols(self.parts))

    def _dims(self, number: int, out: TensorFacts, symbol: int) -> Dims:
        machine, code = self.machine, self.code
        # A kernel resizes its outputs, but no tensor that it changes in place.
        if number >= len(code.writes) or code.name == ops.COPY:
            return machine.tensor_dims(self.side, out.value)
        if code.name == ops.VIEW_COPY:
            return _view_dims(machine, dims(self.parts[0]), self.parts[1], len(out.sizes))
        known = number == 0 and code.act is not Act.UNKNOWN
        found = output_dims(code.name, self.parts, len(out.sizes)) if known else None
        sizes: list[Number] = []
        for dim, (size, most) in enumerate(zip(found or [None] * len(out.sizes), out.sizes, strict=True)):
            key: tuple[object, ...] = (OTHER, "size", symbol, dim)
            mentioned = machine.symbols.mentions[symbol]
            if isinstance(size, Broadcast):
                key = (OTHER, "broadcast", size)
                mentioned = machine.symbols.mentioned(item for each in size.sizes for item in numbers.unknowns(each))
            elif size is not None and not (isinstance(size, int) and size > most):
                sizes.append(size)
                continue
            sizes.append(numbers.unknown(machine.symbols.number(key, mentioned)))
        return tuple(sizes)

    def _with_row(self, out: TensorFacts) -> tuple[Dims, Content | None]:
        """Return the sizes and the content after ``et_copy_index`` has appended a row."""
        machine, code = self.machine, self.code
        (before,) = self.parts[2:]
        row, index = self.parts[:2]
        symbol = machine.symbols.number((OPERATION, code.name, before, row, index, out.kind), self._mentioned())
        self._name(symbol, out.value)
        if index[0] == "i":
            count = numbers.add(any_integer(index), 1)
        else:  # A number that the caller or an instruction sets: it may be of another type, and then the call fails.
            count = numbers.unknown(machine.symbols.number((OTHER, "rows", index), self._mentioned()))
        return (count, *machine.dims(self.side, out.value)[1:]), whole(symbol, out.nbytes)


def run_view(machine: Machine, side: int, code: Code) -> bool:
    """Execute ``et_view``: set the sizes of the output, and point the output to the bytes of the input.

    Return True if input and output are known to have the same number of elements. For the program before the link,
    always return True, because that program is assumed to run without errors.
    """
    of, wanted = code.reads
    (out,) = code.writes
    facts = machine.facts[side]
    target = facts.tensors[out]
    sizes: Dims = target.sizes
    source = machine.tensor_dims(side, of)
    if target.dynamic:
        sizes = _view_dims(machine, source, machine.value(side, wanted), len(target.sizes))
    works = True
    if side == 0:
        machine.state.counts.equate(source, sizes)
    else:
        works = machine.state.counts.same(machine.merges, numbers.product(source), numbers.product(sizes))
    place = each_leaf(machine.located(side, of), lambda leaf: leaf.place if isinstance(leaf, At) else leaf)
    owner: Tree = out
    if out in facts.moved:
        owner = machine.state.references[side].get(out, Unknown(f"value {out} is used before a move sets it"))
    if any(isinstance(leaf, Unknown) for leaf in leaves(owner)):
        raise NotFollowedError(f"value {out} is used before a move sets it")
    shadows = machine.state.shadows[side]
    shadow = shadows.get(of)
    shadows.pop(out, None)
    for tensor in {leaf for leaf in leaves(owner) if isinstance(leaf, int)}:
        known = machine.state.places[side].get(tensor, facts.tensors[tensor].place)
        if known != place:
            machine.forget_shadows(side, {tensor})
        machine.state.places[side][tensor] = each_leaf(
            owner,
            lambda leaf, tensor=tensor, known=known: place if leaf == tensor else known,  # type: ignore[misc]
        )
        machine.state.log.entries.append((PLACE, side, tensor))
    if shadow is not None and out not in facts.moved:
        shadows[out] = shadow[0], sizes, shadow[2]
    if target.dynamic:
        machine.write(side, out, sizes, None)
    return works


def _view_dims(machine: Machine, source: Dims, wanted: Part, rank: int) -> Dims:
    """Return the sizes of a view. If a size cannot be computed, use an unknown that is the same for equal operands."""
    found = viewed_dims(source, wanted)
    if found is None or len(found) != rank:
        found = _odd_dims(machine, source, wanted, rank)
    return found


def _odd_dims(machine: Machine, source: Dims, wanted: Part, rank: int) -> Dims:
    symbol = machine.symbols.number((OTHER, "view", source, wanted), machine.symbols.mentioned(_symbols((wanted,))))
    mentioned = machine.symbols.mentions[symbol] | machine.symbols.mentioned(
        item for size in source for item in numbers.unknowns(size)
    )
    return tuple(
        numbers.unknown(machine.symbols.number((OTHER, "size", symbol, dim), mentioned)) for dim in range(rank)
    )


def run_move(machine: Machine, side: int, call: m.MoveCall) -> None:
    """Execute ``MoveCall``: redirect a value to another tensor, or set the value to another number."""
    facts = machine.facts[side]
    if call.move_from in facts.tensors:
        origin: Tree = call.move_from
        if origin in facts.moved:
            origin = machine.state.references[side].get(
                call.move_from, Unknown(f"value {call.move_from} is used before a move sets it")
            )
        machine.state.references[side][call.move_to] = origin
        shadows = machine.state.shadows[side]
        shadow = shadows.get(call.move_from)
        shadows.pop(call.move_to, None)
        if shadow is not None:
            shadows[call.move_to] = shadow
        machine.state.log.entries.append((REFERENCE, side, call.move_to))
    else:
        machine.set_number(side, call.move_to, machine.value(side, call.move_from))


def _symbols(parts: object) -> Iterator[int]:
    """Yield all symbols that occur in a list of operands."""
    if not isinstance(parts, tuple | list):
        return
    for part in parts:
        if isinstance(part, tuple) and part:
            if is_tensor(part) and len(part) == 3 and isinstance(part[2], tuple):
                yield from (symbol for size in part[1] for symbol in numbers.unknowns(size))
                yield from (symbol for symbol, _, _ in part[2])
            elif part[0] == "i":
                yield from numbers.unknowns(cast(Number, part[1]))
            elif part[0] == "s":
                yield cast(int, part[1])
            elif part[0] == "list":
                yield from _symbols(part[1:])
