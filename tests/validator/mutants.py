"""Linked programs, broken on purpose in many ways.

A mutant still looks like a program. Some mutants compute the same as before, most do not. The stock runtime runs them
to find out. The validator has to refuse every mutant that computes something else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from etdev.linker import Linked
from etdev.program import Blob
from etdev.program import model as m
from etdev.program.sidecar import Sidecar
from etdev.validator import Correspondence, ValidationReport, validate_link

Item = TypeVar("Item")
Call = TypeVar("Call", bound=m.Instruction)


@dataclass(frozen=True)
class Subject:
    """Link to be broken."""

    name: str
    before: m.Program
    linked: Linked
    sidecar: Sidecar
    calls: Sequence[tuple[str, tuple[Any, ...]]]
    """``(method, inputs)`` in order, on one state."""

    @property
    def delegate_inputs(self) -> dict[str, Mapping[int, int]]:
        """Number of arguments that are inputs, by method and by position of the delegate call before the link."""
        return {method: notes.delegate_inputs for method, notes in self.sidecar.methods.items()}

    def links(self) -> dict[str, Correspondence]:
        """Return the corresponding instructions of each method."""
        return {
            report.name: Correspondence(dict(report.renumbered), self.delegate_inputs.get(report.name, {}))
            for report in self.linked.methods
        }

    def validate(self, mutant: Mutant) -> ValidationReport:
        """Run the validator on a mutant."""
        return validate_link(self.before, mutant.program, mutant.links, shared_state=self.linked.shared_state)


@dataclass(frozen=True)
class Mutant:
    """Broken link."""

    kind: str
    what: str
    """Description of the change."""
    program: m.Program
    links: Mapping[str, Correspondence]


class NothingToBreakError(LookupError):
    """Error for a method that has nothing of the kind to be broken."""


@dataclass
class MutatedMethod:
    """Method that is being changed."""

    plan: m.ExecutionPlan
    moved: dict[int, int]
    random: random.Random

    @property
    def calls(self) -> list[m.Instruction]:
        return list(self.plan.chains[0].instructions)

    def with_calls(self, calls: Sequence[m.Instruction]) -> m.ExecutionPlan:
        (chain,) = self.plan.chains
        return replace(self.plan, chains=(replace(chain, instructions=tuple(calls), stacktrace=()),))

    def with_call(self, position: int, call: m.Instruction) -> m.ExecutionPlan:
        calls = self.calls
        calls[position] = call
        return self.with_calls(calls)

    def with_argument(self, position: int, argument: int, value: int) -> m.ExecutionPlan:
        call = self.calls[position]
        assert isinstance(call, m.KernelCall | m.DelegateCall)
        args = (*call.args[:argument], value, *call.args[argument + 1 :])
        return self.with_call(position, replace(call, args=args))

    def with_value(self, index: int, value: m.Value) -> m.ExecutionPlan:
        values = list(self.plan.values)
        values[index] = value
        return replace(self.plan, values=tuple(values))

    def with_place(self, index: int, buffer: int, offset: int) -> m.ExecutionPlan:
        """Move a tensor, if its new place is inside the buffer."""
        tensor = self.at(index)
        sizes = self.plan.non_const_buffer_sizes
        if buffer >= len(sizes) or not 0 <= offset <= sizes[buffer] - tensor.nbytes:
            raise NothingToBreakError
        return self.with_value(index, replace(tensor, allocation_info=m.AllocationDetails(buffer, offset)))

    def without(self, position: int) -> m.ExecutionPlan:
        """Remove an instruction; adjust jumps and correspondence."""
        calls = [
            replace(
                call, destination_instruction=call.destination_instruction - (call.destination_instruction > position)
            )
            if isinstance(call, m.JumpFalseCall)
            else call
            for call in self.calls
        ]
        del calls[position]
        moved = {here: there - (there > position) for here, there in self.moved.items() if there != position}
        self.moved.clear()
        self.moved.update(moved)
        return self.with_calls(calls)

    def at(self, index: int) -> m.Tensor:
        tensor = self.plan.values[index]
        assert isinstance(tensor, m.Tensor)
        return tensor

    def place(self, index: int) -> m.AllocationDetails:
        place = self.at(index).allocation_info
        assert place is not None
        return place

    def is_tensor(self, index: int) -> bool:
        return isinstance(self.plan.values[index], m.Tensor)

    def is_planned(self, index: int) -> bool:
        return self.is_tensor(index) and self.at(index).allocation_info is not None

    def planned(self) -> list[int]:
        return [index for index, tensor in self.plan.tensors() if tensor.allocation_info and tensor.nbytes]

    def like(self, index: int) -> list[int]:
        """Return other tensors of the same type and sizes."""
        mine = self.at(index)
        form = (mine.scalar_type, mine.sizes, mine.dim_order, mine.shape_dynamism)
        return [
            other
            for other, tensor in self.plan.tensors()
            if other != index
            and (tensor.scalar_type, tensor.sizes, tensor.dim_order, tensor.shape_dynamism) == form
            and (tensor.allocation_info or tensor.is_constant)
        ]

    def operator(self, call: m.KernelCall) -> str:
        found = self.plan.operators[call.op_index]
        return f"{found.name}.{found.overload}"

    def pick(self, items: Sequence[Item]) -> Item:
        if not items:
            raise NothingToBreakError
        return self.random.choice(items)

    def pick_call(self, kind: type[Call], fits: Callable[[Call], bool] = lambda _: True) -> tuple[int, Call]:
        """Choose an instruction of a kind; return its position too."""
        return self.pick([(at, call) for at, call in enumerate(self.calls) if isinstance(call, kind) and fits(call)])


_Changed: TypeAlias = tuple[str, m.ExecutionPlan]
"""Description of the change, and the broken method."""
_Change: TypeAlias = Callable[[MutatedMethod], _Changed]
"""Function that breaks a method; raises :class:`NothingToBreakError`."""
KINDS: dict[str, _Change] = {}


def _kind(change: _Change) -> _Change:
    KINDS[change.__name__.strip("_").replace("_", " ")] = change
    return change


def mutants(subject: Subject, each: int, seed: int = 0, kinds: Mapping[str, _Change] | None = None) -> Iterator[Mutant]:
    """Yield up to ``each`` mutants of every kind, or only of these kinds. Equal seeds yield equal mutants."""
    for kind, change in (kinds or KINDS).items():
        seen = set()
        for number in range(each):
            chance = random.Random(f"{seed} {subject.name} {kind} {number}")
            index = chance.randrange(len(subject.linked.program.execution_plan))
            plan = subject.linked.program.execution_plan[index]
            if len(plan.chains) != 1:
                continue
            links = subject.links()
            method = MutatedMethod(plan, dict(links[plan.name].moved), chance)
            try:
                what, broken = change(method)
            except NothingToBreakError:
                continue
            if what in seen:
                continue
            seen.add(what)
            plans = list(subject.linked.program.execution_plan)
            plans[index] = broken
            links[plan.name] = Correspondence(method.moved, links[plan.name].delegate_inputs)
            yield Mutant(
                kind, f"{plan.name}: {what}", replace(subject.linked.program, execution_plan=tuple(plans)), links
            )
    if kinds is None:
        yield from _other_data(subject, each, seed)


def _other_data(subject: Subject, each: int, seed: int) -> Iterator[Mutant]:
    """Change one byte of a constant or of an initial value."""
    chance = random.Random(f"{seed} {subject.name} data")
    program = subject.linked.program
    fitting = [number for number, segment in enumerate(program.segments) if len(segment.data)]
    for _ in range(min(each, 2) if fitting else 0):
        number = chance.choice(fitting)
        content = bytearray(bytes(program.segments[number].data))
        place = chance.randrange(len(content))
        content[place] ^= 1 << chance.randrange(8)
        segments = list(program.segments)
        segments[number] = replace(segments[number], data=Blob(bytes(content)))
        what = f"byte {place} of segment {number}"
        yield Mutant("other data", what, replace(program, segments=tuple(segments)), subject.links())


# Addresses


@_kind
def _shifted(method: MutatedMethod) -> _Changed:
    """Move a tensor by a few bytes."""
    index = method.pick(method.planned())
    place = method.place(index)
    step = method.random.choice((4, 16, 64, -4, -16, -64))
    return f"value {index} by {step}", method.with_place(index, place.memory_id, place.memory_offset + step)


@_kind
def _places_swapped(method: MutatedMethod) -> _Changed:
    """Swap the places of two tensors of one size."""
    one = method.pick(method.planned())
    mine = method.at(one)
    other = method.pick(
        [
            index
            for index in method.planned()
            if method.at(index).nbytes == mine.nbytes and method.place(index) != method.place(one)
        ]
    )
    theirs = method.at(other)
    values = list(method.plan.values)
    values[one] = replace(mine, allocation_info=theirs.allocation_info)
    values[other] = replace(theirs, allocation_info=mine.allocation_info)
    return f"values {one} and {other}", replace(method.plan, values=tuple(values))


def _two_places(method: MutatedMethod) -> tuple[int, int]:
    index, other = method.pick(method.planned()), method.pick(method.planned())
    if index == other:
        raise NothingToBreakError
    return index, other


@_kind
def _laid_over(method: MutatedMethod) -> _Changed:
    """Move a tensor to the start of another one, as with a lifetime that is too short."""
    index, other = _two_places(method)
    place = method.place(other)
    return f"value {index} over {other}", method.with_place(index, place.memory_id, place.memory_offset)


@_kind
def _laid_over_with_its_aliases(method: MutatedMethod) -> _Changed:
    """Move all tensors at one place to the place of another tensor."""
    index, other = _two_places(method)
    old, new = method.place(index), method.place(other)
    end = old.memory_offset + method.at(index).nbytes
    for value in method.planned():
        place = method.place(value)
        if place.memory_id == old.memory_id and old.memory_offset <= place.memory_offset < end:
            offset = new.memory_offset + place.memory_offset - old.memory_offset
            method.plan = method.with_place(value, new.memory_id, offset)
    return f"values at {index} over {other}", method.plan


@_kind
def _in_place_of_an_operand(method: MutatedMethod) -> _Changed:
    """Move the output of a kernel over one of its operands, whether that is allowed or not."""
    position, call = method.pick_call(m.KernelCall)
    out = call.args[-1]
    donor = method.pick([arg for arg in call.args[:-2] if method.is_planned(arg) and arg != out])
    if not method.is_planned(out):
        raise NothingToBreakError
    plan = method.with_place(out, method.place(out).memory_id, method.place(donor).memory_offset)
    return f"instruction {position} ({method.operator(call)}), {out} over {donor}", plan


# Operands


@_kind
def _other_operand(method: MutatedMethod) -> _Changed:
    """Replace an operand by a tensor like it: an earlier one, one of another branch, or a constant."""
    position, call = method.pick(
        [(at, call) for at, call in enumerate(method.calls) if isinstance(call, m.KernelCall | m.DelegateCall)]
    )
    fitting = [
        (number, other)
        for number, arg in enumerate(call.args[:-2])
        if method.is_tensor(arg)
        for other in method.like(arg)
    ]
    number, other = method.pick(fitting)
    return f"argument {number} of instruction {position} by {other}", method.with_argument(position, number, other)


@_kind
def _operands_exchanged(method: MutatedMethod) -> _Changed:
    """Exchange two operands of one form."""
    position, call = method.pick_call(m.KernelCall)
    tensors = [n for n, arg in enumerate(call.args[:-2]) if method.is_tensor(arg)]
    one, other = method.pick(
        [
            (one, other)
            for one in tensors
            for other in tensors
            if one < other and call.args[other] in method.like(call.args[one])
        ]
    )
    args = list(call.args)
    args[one], args[other] = args[other], args[one]
    return f"{(one, other)} of instruction {position}", method.with_call(position, replace(call, args=tuple(args)))


@_kind
def _other_number(method: MutatedMethod) -> _Changed:
    """Increase a number that an operator gets by one."""
    position, call = method.pick_call(m.KernelCall)
    values = method.plan.values
    number, arg = method.pick(
        [(n, arg) for n, arg in enumerate(call.args) if isinstance(values[arg], m.Int | m.Double)]
    )
    match values[arg]:
        case m.Int(known):
            changed: m.Value = m.Int(known + 1)
        case m.Double(measure):
            changed = m.Double(measure + 1)
    method.plan = replace(method.plan, values=(*values, changed))
    return f"argument {number} of instruction {position}", method.with_argument(position, number, len(values))


@_kind
def _other_item_of_a_list(method: MutatedMethod) -> _Changed:
    """Replace a tensor of a list, or exchange two."""
    lists = [(index, value) for index, value in enumerate(method.plan.values) if isinstance(value, m.TensorList)]
    index, value = method.pick([(index, value) for index, value in lists if len(value.items) > 1])
    items = list(value.items)
    one = method.random.randrange(len(items))
    items[one] = other = method.pick(method.like(items[one]))
    return f"item {one} of list {index} by {other}", method.with_value(index, m.TensorList(tuple(items)))


@_kind
def _other_constant(method: MutatedMethod) -> _Changed:
    """Use the data of another constant of the same size."""
    constants = [index for index, tensor in method.plan.tensors() if tensor.is_constant and not tensor.is_external]
    one = method.pick(constants)
    mine = method.at(one)
    other = method.pick(
        [
            index
            for index in constants
            if method.at(index).nbytes == mine.nbytes and method.at(index).data_buffer_idx != mine.data_buffer_idx
        ]
    )
    data = method.at(other).data_buffer_idx
    return f"constant {one} as {other}", method.with_value(one, replace(mine, data_buffer_idx=data))


@_kind
def _other_output(method: MutatedMethod) -> _Changed:
    """Replace an output of the method by another tensor like it."""
    number, other = method.pick(
        [
            (number, other)
            for number, value in enumerate(method.plan.outputs)
            if method.is_tensor(value)
            for other in method.like(value)
        ]
    )
    outputs = list(method.plan.outputs)
    outputs[number] = other
    return f"output {number} by {other}", replace(method.plan, outputs=tuple(outputs))


# Instructions


@_kind
def _instruction_dropped(method: MutatedMethod) -> _Changed:
    """Remove an instruction."""
    position = method.pick([at for at, call in enumerate(method.calls) if not isinstance(call, m.JumpFalseCall)])
    return f"instruction {position}", method.without(position)


@_kind
def _write_back_dropped(method: MutatedMethod) -> _Changed:
    """Remove an instruction that changes a tensor in place, most often state."""

    def fits(call: m.KernelCall) -> bool:
        return method.operator(call).partition(".")[0].endswith("_")

    position, _ = method.pick_call(m.KernelCall, fits)
    return f"instruction {position}", method.without(position)


def _aliased(method: MutatedMethod, fits: Callable[[m.KernelCall], bool]) -> _Changed:
    """Remove an instruction and place its output over its first input."""
    position, call = method.pick_call(m.KernelCall, fits)
    out = call.args[-1]
    place = method.at(call.args[0]).allocation_info
    method.plan = method.with_value(out, replace(method.at(out), allocation_info=place))
    return f"instruction {position}, value {out}", method.without(position)


@_kind
def _copy_for_an_alias(method: MutatedMethod) -> _Changed:
    """Remove a copy and place its output over its input, whether that is written again or not."""

    def fits(call: m.KernelCall) -> bool:
        given, out, name = call.args[0], call.args[-1], method.operator(call)
        return (
            len(call.args) > 2
            and method.is_planned(given)
            and method.is_planned(out)
            and method.at(given).nbytes >= method.at(out).nbytes
            and ("copy" in name or "clone" in name)
        )

    return _aliased(method, fits)


@_kind
def _view_for_an_alias(method: MutatedMethod) -> _Changed:
    """Replace a view that sets sizes at run time by a fixed alias."""

    def fits(call: m.KernelCall) -> bool:
        return method.operator(call) == "executorch_prim::et_view.default" and method.is_planned(call.args[0])

    return _aliased(method, fits)


@_kind
def _instructions_reordered(method: MutatedMethod) -> _Changed:
    """Swap two adjacent instructions, with or without the correspondence."""
    calls = method.calls
    position = method.pick(
        [
            position
            for position in range(len(calls) - 1)
            if not any(isinstance(call, m.JumpFalseCall) for call in calls[position : position + 2])
        ]
    )
    calls[position], calls[position + 1] = calls[position + 1], calls[position]
    if method.random.random() < 0.5:
        swap = {position: position + 1, position + 1: position}
        method.moved.update({here: swap.get(there, there) for here, there in method.moved.items()})
    return f"instructions {position} and {position + 1}", method.with_calls(calls)


@_kind
def _dependent_instructions_swapped(method: MutatedMethod) -> _Changed:
    """Swap an instruction and one that reads its output, if no jump is between them. The correspondence follows."""
    calls = method.calls
    made: dict[int, int] = {}
    pairs = []
    for position, call in enumerate(calls):
        if isinstance(call, m.JumpFalseCall):
            made.clear()
        elif isinstance(call, m.KernelCall | m.DelegateCall):
            pairs += [(made[value], position) for value in dict.fromkeys(call.args) if value in made]
            made.update({value: position for value in call.args[-1:] if method.is_tensor(value)})
    one, other = method.pick(pairs)
    calls[one], calls[other] = calls[other], calls[one]
    swap = {one: other, other: one}
    method.moved.update({here: swap.get(there, there) for here, there in method.moved.items()})
    return f"instructions {one} and {other}", method.with_calls(calls)


@_kind
def _other_operator(method: MutatedMethod) -> _Changed:
    """Use another operator that takes as many arguments."""
    position, call = method.pick_call(m.KernelCall)
    others = {
        other.op_index
        for other in method.calls
        if isinstance(other, m.KernelCall) and len(other.args) == len(call.args) and other.op_index != call.op_index
    }
    other = method.pick(sorted(others))
    return f"instruction {position} by operator {other}", method.with_call(position, replace(call, op_index=other))


# Control flow


@_kind
def _other_side_of_a_merge(method: MutatedMethod) -> _Changed:
    """Move from another tensor."""
    position, call = method.pick_call(m.MoveCall)
    if not method.is_tensor(call.move_from):
        raise NothingToBreakError
    other = method.pick(method.like(call.move_from))
    return f"instruction {position} from {other}", method.with_call(position, replace(call, move_from=other))


@_kind
def _other_jump(method: MutatedMethod) -> _Changed:
    """Jump to the next instruction, or to the one before."""
    position, call = method.pick_call(m.JumpFalseCall)
    target = call.destination_instruction + method.random.choice((-1, 1))
    if not position < target <= len(method.calls):
        raise NothingToBreakError
    changed = replace(call, destination_instruction=target)
    return f"instruction {position} to {target}", method.with_call(position, changed)


@_kind
def _initial_value_dropped(method: MutatedMethod) -> _Changed:
    """Drop an initial value; the state then starts with zeros."""
    index = method.pick([index for index, tensor in method.plan.tensors() if tensor.has_initial_value])
    return f"value {index}", method.with_value(index, replace(method.at(index), data_buffer_idx=0))
