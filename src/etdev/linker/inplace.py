"""In place: the output of a kernel takes over the bytes of an operand that nobody needs any more.

1. The kernel gives the same result if the two are one: a property of the operator and of the position of the operand,
   which :mod:`etdev.program.inplace` has.
2. Output and operand have one element type, one order of dimensions and, whatever the sizes are at run time, one shape:
   an operand that is broadcast is read again after it was written over.
3. The operand is nobody else's: no constant, no memory of the caller, no state; and no other argument of the call lies
   in the same bytes, unless it is the same tensor at a position that allows it as well.
4. The instruction is the last that needs anything of the operand's storage, and the first that writes any of the
   output's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from etdev.linker.options import InPlace
from etdev.linker.shapes import Shapes
from etdev.program import model as m
from etdev.program.effects import arguments, operator_name, outputs, tensors
from etdev.program.inplace import Donor
from etdev.program.storage import MethodMemory


def work_in_place(
    plan: m.ExecutionPlan, memory: MethodMemory, table: Mapping[str, Sequence[Donor]]
) -> tuple[m.ExecutionPlan, tuple[InPlace, ...]]:
    """Lay outputs over the operands that ``table`` allows, with what was decided about each call of its operators.

    The method has to be an object program's, where only aliases share bytes. No instruction changes.
    """
    work = _Work(plan, memory)
    for position, call in enumerate(memory.reaching.flow.instructions):
        if isinstance(call, m.KernelCall):
            name = operator_name(plan.operators[call.op_index])
            if name in table:
                work.consider(position, call, name, table[name])
    return work.result(), tuple(work.decisions)


class _Refuse(Exception):  # noqa: N818 - no error: the reason for not working in place
    pass


@dataclass(slots=True)
class _Chain:
    """A storage, or several that became one."""

    start: int
    end: int
    numbers: list[int]
    """The storages, in the order of their time."""


@dataclass(slots=True)
class _Work:
    plan: m.ExecutionPlan
    memory: MethodMemory
    decisions: list[InPlace] = field(default_factory=list)
    _chains: list[_Chain] = field(init=False)
    """By storage, the chain that it is in."""
    _places: Mapping[tuple[int, int], frozenset[int]] = field(init=False)
    """Position and value that is read there → the values in whose places it may lie."""
    _freed: frozenset[int] = field(init=False)
    _shapes: Shapes = field(init=False)

    def __post_init__(self) -> None:
        self._chains = [_Chain(item.start, item.end, [index]) for index, item in enumerate(self.memory.storages)]
        places: dict[tuple[int, int], set[int]] = defaultdict(set)
        for use in self.memory.reaching.uses:
            places[use.position, use.value].add(use.place)
        self._places = {key: frozenset(found) for key, found in places.items()}
        flow = self.memory.reaching.flow
        self._freed = frozenset(call.value_index for call in flow.instructions if isinstance(call, m.FreeCall))
        self._shapes = Shapes(self.plan, flow)

    def consider(self, position: int, call: m.KernelCall, name: str, donors: Sequence[Donor]) -> None:
        """Decide about one call, for each of its outputs."""
        outs = outputs(self.plan, call.args)
        for output in sorted({donor.output for donor in donors if donor.output < len(outs)}):
            positions = [donor.argument for donor in donors if donor.output == output]
            self.decisions.append(self._decide(position, call, name, output, outs[output], positions))

    def _decide(
        self, position: int, call: m.KernelCall, name: str, output: int, out: int, positions: Sequence[int]
    ) -> InPlace:
        size = self._tensor(out).nbytes
        try:
            self._require_new(position, out)
        except _Refuse as reason:
            return InPlace(position, name, output, None, size, str(reason))
        reasons = []
        given = arguments(self.plan, call.args)
        for argument in positions:
            try:
                if argument >= len(given):
                    continue
                place = self._require_like(position, given[argument], out)
                self._require_dying(position, given[argument], place, out)
                self._require_alone(position, given, place, positions)
            except _Refuse as reason:
                reasons.append(f"argument {argument} {reason}")
                continue
            self._join(place, out)
            return InPlace(position, name, output, argument, size)
        return InPlace(position, name, output, None, size, "; ".join(reasons) or "it has no tensor to take")

    def result(self) -> m.ExecutionPlan:
        """The method with the addresses that this takes."""
        values = list(self.plan.values)
        for number, chain in enumerate(self._chains):
            if chain.numbers[0] == number:
                base = self.memory.storages[number]
                for other in chain.numbers[1:]:
                    storage = self.memory.storages[other]
                    for value in storage.values:
                        inside = self.memory.reaching.places[value].start - storage.offset
                        there = m.AllocationDetails(base.memory_id, base.offset + inside)
                        values[value] = replace(self._tensor(value), allocation_info=there)
        return replace(self.plan, values=tuple(values))

    # What must hold

    def _require_new(self, position: int, out: int) -> None:
        """The output's storage begins here, and is the output's alone."""
        if not self._tensor(out).nbytes:
            raise _Refuse("it writes nothing")
        if out not in self.memory.of:
            raise _Refuse("the memory of its output is not planned")
        if out in self.memory.reaching.references:
            raise _Refuse("where its output lies is known at run time only")
        storage = self.memory.storages[self.memory.of[out]]
        if storage.persistent:
            raise _Refuse("its output is state")
        if self._tensor(out).nbytes != storage.size:
            raise _Refuse("its output is a part of another tensor")
        if self._chains[self.memory.of[out]].start != position + 1:
            raise _Refuse("the memory of its output is in use before")
        if self._freed.intersection(storage.values):
            raise _Refuse("an instruction gives the memory of its output back")

    def _require_like(self, position: int, donor: int, out: int) -> int:
        """The operand is a tensor like the output; says in which value's place it lies."""
        if not isinstance(self.plan.values[donor], m.Tensor):
            raise _Refuse("is no tensor")
        mine, theirs = self._tensor(out), self._tensor(donor)
        if theirs.is_constant:
            raise _Refuse("is a constant")
        places = self._places.get((position, donor), frozenset())
        if len(places) != 1:
            raise _Refuse("may be one of several tensors" if places else "lies in memory that is not planned")
        if mine.scalar_type is not theirs.scalar_type:
            raise _Refuse("has another element type")
        if not self._shapes.equal(donor, out):
            raise _Refuse("has another shape, or may have at run time")
        if mine.dim_order != theirs.dim_order:
            raise _Refuse("has its dimensions in another order in memory")
        return next(iter(places))

    def _require_dying(self, position: int, donor: int, place: int, out: int) -> None:
        """Nobody needs the storage of the operand any more."""
        number = self.memory.of[place]
        storage, chain = self.memory.storages[number], self._chains[number]
        if storage.persistent:
            raise _Refuse("is state, which is kept between calls")
        if storage.memory_id != self.memory.storages[self.memory.of[out]].memory_id:
            raise _Refuse("is in another buffer")
        if self._freed.intersection((donor, *storage.values)):
            raise _Refuse("is given back by an instruction")
        if not self._tensor(donor).nbytes == self._tensor(place).nbytes == storage.size:
            raise _Refuse("is a part of another tensor")
        if chain.end != position + 2:
            raise _Refuse("is needed afterwards")

    def _require_alone(self, position: int, given: Sequence[int], place: int, positions: Sequence[int]) -> None:
        """No other argument lies in the bytes of the operand, but where the table lets it be the operand itself."""
        number = self.memory.of[place]
        (donor,) = {given[item] for item in positions if item < len(given) and self._at(position, given[item]) == place}
        for argument, value in enumerate(given):
            same = argument in positions and value == donor
            for tensor in tensors(self.plan, (value,)) if not same else ():
                found = self._places.get((position, tensor), frozenset())
                if any(self._chains[self.memory.of[other]] is self._chains[number] for other in found):
                    raise _Refuse(f"is argument {argument}, too")

    def _at(self, position: int, value: int) -> int | None:
        found = self._places.get((position, value), frozenset())
        return next(iter(found)) if len(found) == 1 else None

    def _join(self, place: int, out: int) -> None:
        """From here on the output's storage is where the operand's is."""
        mine, theirs = self._chains[self.memory.of[place]], self._chains[self.memory.of[out]]
        mine.end = max(mine.end, theirs.end)
        mine.numbers += theirs.numbers
        for number in theirs.numbers:
            self._chains[number] = mine

    def _tensor(self, index: int) -> m.Tensor:
        tensor = self.plan.values[index]
        assert isinstance(tensor, m.Tensor)
        return tensor
