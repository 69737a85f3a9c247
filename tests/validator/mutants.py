"""Linked programs, broken on purpose in many ways.

A mutant is a program that still looks like one. Some compute what they did, most do not; what they compute is found out
by running them in the stock runtime, and every one that computes something else has to be refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from etdev.linker import Linked
from etdev.program import Blob
from etdev.program import model as m
from etdev.validator import Correspondence, ValidationReport, validate_link


@dataclass(frozen=True)
class Subject:
    """A link to be broken."""

    name: str
    before: m.Program
    linked: Linked
    delegate_inputs: Mapping[str, Mapping[int, int]]
    """Per method, position before the link of each delegate call → how many of its arguments are inputs."""
    calls: Sequence[tuple[str, tuple[Any, ...]]]
    """``(method, inputs)``, one after the other on one state."""

    def links(self) -> dict[str, Correspondence]:
        """Which instruction is which."""
        return {
            report.name: Correspondence(dict(report.renumbered), self.delegate_inputs.get(report.name, {}))
            for report in self.linked.methods
        }

    def validate(self, mutant: Mutant) -> ValidationReport:
        """What the validator says to a mutant."""
        return validate_link(self.before, mutant.program, mutant.links, shared_state=self.linked.shared_state)


@dataclass(frozen=True)
class Mutant:
    """A broken link."""

    kind: str
    what: str
    """What was changed."""
    program: m.Program
    links: Mapping[str, Correspondence]


@dataclass
class _Method:
    """A method that is being changed."""

    plan: m.ExecutionPlan
    moved: dict[int, int]
    random: random.Random

    @property
    def calls(self) -> list[m.Instruction]:
        return list(self.plan.chains[0].instructions)

    def with_calls(self, calls: Sequence[m.Instruction]) -> m.ExecutionPlan:
        (chain,) = self.plan.chains
        return replace(self.plan, chains=(replace(chain, instructions=tuple(calls), stacktrace=()),))

    def with_value(self, index: int, value: m.Value) -> m.ExecutionPlan:
        values = list(self.plan.values)
        values[index] = value
        return replace(self.plan, values=tuple(values))

    def at(self, index: int) -> m.Tensor:
        tensor = self.plan.values[index]
        assert isinstance(tensor, m.Tensor)
        return tensor

    def planned(self) -> list[int]:
        return [index for index, tensor in self.plan.tensors() if tensor.allocation_info and tensor.nbytes]

    def like(self, index: int) -> list[int]:
        """Other tensors of the same type and sizes."""
        mine = self.at(index)
        form = (mine.scalar_type, mine.sizes, mine.dim_order, mine.shape_dynamism)
        return [
            other
            for other, tensor in self.plan.tensors()
            if other != index
            and (tensor.scalar_type, tensor.sizes, tensor.dim_order, tensor.shape_dynamism) == form
            and (tensor.allocation_info or tensor.is_constant)
        ]

    def kernels(self) -> list[int]:
        return [position for position, call in enumerate(self.calls) if isinstance(call, m.KernelCall)]

    def operator(self, call: m.KernelCall) -> str:
        found = self.plan.operators[call.op_index]
        return f"{found.name}.{found.overload}"

    def pick(self, items: Sequence[Any]) -> Any:
        return self.random.choice(items) if items else None


_Change: TypeAlias = Callable[[_Method], tuple[str, m.ExecutionPlan] | None]
"""Breaks a method; says how. None if there is nothing of the kind."""
KINDS: dict[str, _Change] = {}


def _kind(change: _Change) -> _Change:
    KINDS[change.__name__.strip("_").replace("_", " ")] = change
    return change


def mutants(subject: Subject, each: int, seed: int = 0) -> Iterator[Mutant]:
    """Up to ``each`` mutants of every kind. Equal seeds give equal mutants."""
    for kind, change in KINDS.items():
        seen = set()
        for number in range(each):
            chance = random.Random(f"{seed} {subject.name} {kind} {number}")
            index = chance.randrange(len(subject.linked.program.execution_plan))
            plan = subject.linked.program.execution_plan[index]
            if len(plan.chains) != 1:
                continue
            links = subject.links()
            method = _Method(plan, dict(links[plan.name].moved), chance)
            found = change(method)
            if found is None or found[0] in seen:
                continue
            what, broken = found
            seen.add(what)
            plans = list(subject.linked.program.execution_plan)
            plans[index] = broken
            links[plan.name] = Correspondence(method.moved, links[plan.name].delegate_inputs)
            yield Mutant(
                kind, f"{plan.name}: {what}", replace(subject.linked.program, execution_plan=tuple(plans)), links
            )
    yield from _other_data(subject, each, seed)


def _other_data(subject: Subject, each: int, seed: int) -> Iterator[Mutant]:
    """One byte of a constant or of an initial value."""
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


def _moved_to(method: _Method, index: int, offset: int) -> m.ExecutionPlan | None:
    tensor = method.at(index)
    assert tensor.allocation_info is not None
    buffer = tensor.allocation_info.memory_id
    if not 0 <= offset <= method.plan.non_const_buffer_sizes[buffer] - tensor.nbytes:
        return None
    return method.with_value(index, replace(tensor, allocation_info=m.AllocationDetails(buffer, offset)))


# Addresses


@_kind
def _shifted(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """A tensor a little further on, or back."""
    index = method.pick(method.planned())
    if index is None:
        return None
    place = method.at(index).allocation_info
    assert place is not None
    step = method.random.choice((4, 16, 64, -4, -16, -64))
    plan = _moved_to(method, index, place.memory_offset + step)
    return None if plan is None else (f"value {index} by {step}", plan)


@_kind
def _places_swapped(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """Two tensors of one size in each other's places."""
    one = method.pick(method.planned())
    others = (
        []
        if one is None
        else [
            index
            for index in method.planned()
            if method.at(index).nbytes == method.at(one).nbytes
            and method.at(index).allocation_info != method.at(one).allocation_info
        ]
    )
    other = method.pick(others)
    if other is None:
        return None
    values = list(method.plan.values)
    mine, theirs = method.at(one), method.at(other)
    values[one] = replace(mine, allocation_info=theirs.allocation_info)
    values[other] = replace(theirs, allocation_info=mine.allocation_info)
    return f"values {one} and {other}", replace(method.plan, values=tuple(values))


@_kind
def _laid_over(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """A tensor where another one begins: a lifetime that was taken for shorter, a state for a temporary."""
    index, other = method.pick(method.planned()), method.pick(method.planned())
    if index is None or index == other:
        return None
    place = method.at(other).allocation_info
    assert place is not None
    values = list(method.plan.values)
    tensor = method.at(index)
    if place.memory_offset + tensor.nbytes > method.plan.non_const_buffer_sizes[place.memory_id]:
        return None
    values[index] = replace(tensor, allocation_info=place)
    return f"value {index} over {other}", replace(method.plan, values=tuple(values))


@_kind
def _laid_over_with_its_aliases(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """All that lies in the place of a tensor in the place of another one."""
    index, other = method.pick(method.planned()), method.pick(method.planned())
    if index is None or index == other:
        return None
    old, new = method.at(index).allocation_info, method.at(other).allocation_info
    assert old is not None
    assert new is not None
    end = old.memory_offset + method.at(index).nbytes
    values = list(method.plan.values)
    for value in method.planned():
        tensor = method.at(value)
        place = tensor.allocation_info
        assert place is not None
        if place.memory_id == old.memory_id and old.memory_offset <= place.memory_offset < end:
            offset = new.memory_offset + place.memory_offset - old.memory_offset
            if offset + tensor.nbytes > method.plan.non_const_buffer_sizes[new.memory_id]:
                return None
            values[value] = replace(tensor, allocation_info=m.AllocationDetails(new.memory_id, offset))
    return f"values at {index} over {other}", replace(method.plan, values=tuple(values))


@_kind
def _in_place_of_an_operand(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """The output of a kernel over one of its operands, whether that may be or not."""
    position = method.pick(method.kernels())
    call = method.calls[position] if position is not None else None
    if not isinstance(call, m.KernelCall):
        return None
    out = call.args[-1]
    donors = [
        arg
        for arg in call.args[:-2]
        if isinstance(method.plan.values[arg], m.Tensor) and method.at(arg).allocation_info and arg != out
    ]
    donor = method.pick(donors)
    if donor is None or not isinstance(method.plan.values[out], m.Tensor) or not method.at(out).allocation_info:
        return None
    place = method.at(donor).allocation_info
    assert place is not None
    plan = _moved_to(method, out, place.memory_offset)
    return None if plan is None else (f"instruction {position} ({method.operator(call)}), {out} over {donor}", plan)


# Operands


def _replaced(method: _Method, position: int, argument: int, value: int) -> m.ExecutionPlan:
    calls = method.calls
    call = calls[position]
    assert isinstance(call, m.KernelCall | m.DelegateCall)
    calls[position] = replace(call, args=(*call.args[:argument], value, *call.args[argument + 1 :]))
    return method.with_calls(calls)


@_kind
def _other_operand(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """An operand replaced by another tensor like it: one from before, one of another branch, a constant."""
    positions = [p for p, call in enumerate(method.calls) if isinstance(call, m.KernelCall | m.DelegateCall)]
    position = method.pick(positions)
    if position is None:
        return None
    args = method.calls[position].args  # type: ignore[union-attr]
    fitting = [
        (number, other)
        for number, arg in enumerate(args[:-2])
        if isinstance(method.plan.values[arg], m.Tensor)
        for other in method.like(arg)
    ]
    found = method.pick(fitting)
    if found is None:
        return None
    return f"argument {found[0]} of instruction {position} by {found[1]}", _replaced(method, position, *found)


@_kind
def _operands_exchanged(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """Two operands of one form in each other's places."""
    position = method.pick(method.kernels())
    call = method.calls[position] if position is not None else None
    if not isinstance(call, m.KernelCall):
        return None
    tensors = [n for n, arg in enumerate(call.args[:-2]) if isinstance(method.plan.values[arg], m.Tensor)]
    pairs = [
        (one, other)
        for one in tensors
        for other in tensors
        if one < other and call.args[other] in method.like(call.args[one])
    ]
    found = method.pick(pairs)
    if found is None:
        return None
    args = list(call.args)
    args[found[0]], args[found[1]] = args[found[1]], args[found[0]]
    calls = method.calls
    calls[position] = replace(call, args=tuple(args))
    return f"{found} of instruction {position}", method.with_calls(calls)


@_kind
def _other_number(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """A number that an operator gets, one more."""
    position = method.pick(method.kernels())
    call = method.calls[position] if position is not None else None
    if not isinstance(call, m.KernelCall):
        return None
    numbers = [(n, arg) for n, arg in enumerate(call.args) if isinstance(method.plan.values[arg], m.Int | m.Double)]
    found = method.pick(numbers)
    if found is None:
        return None
    value = method.plan.values[found[1]]
    changed = m.Int(value.int_val + 1) if isinstance(value, m.Int) else m.Double(value.double_val + 1)  # type: ignore[union-attr]
    plan = replace(method.plan, values=(*method.plan.values, changed))
    method.plan = plan
    return f"argument {found[0]} of instruction {position}", _replaced(method, position, found[0], len(plan.values) - 1)


@_kind
def _other_item_of_a_list(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """A tensor of a list replaced, or two exchanged."""
    lists = [index for index, value in enumerate(method.plan.values) if isinstance(value, m.TensorList)]
    index = method.pick([item for item in lists if len(method.plan.values[item].items) > 1])  # type: ignore[union-attr]
    if index is None:
        return None
    items = list(method.plan.values[index].items)  # type: ignore[union-attr]
    one = method.random.randrange(len(items))
    other = method.pick(method.like(items[one]))
    if other is None:
        return None
    items[one] = other
    return f"item {one} of list {index} by {other}", method.with_value(index, m.TensorList(tuple(items)))


@_kind
def _other_constant(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """The data of another constant of the same size."""
    constants = [index for index, tensor in method.plan.tensors() if tensor.is_constant and not tensor.is_external]
    one = method.pick(constants)
    others = (
        []
        if one is None
        else [
            index
            for index in constants
            if method.at(index).nbytes == method.at(one).nbytes
            and method.at(index).data_buffer_idx != method.at(one).data_buffer_idx
        ]
    )
    other = method.pick(others)
    if one is None or other is None:
        return None
    data = method.at(other).data_buffer_idx
    return f"constant {one} as {other}", method.with_value(one, replace(method.at(one), data_buffer_idx=data))


@_kind
def _other_output(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """An output of the method replaced by another tensor like it."""
    tensors = [
        (number, other)
        for number, value in enumerate(method.plan.outputs)
        if isinstance(method.plan.values[value], m.Tensor)
        for other in method.like(value)
    ]
    found = method.pick(tensors)
    if found is None:
        return None
    outputs = list(method.plan.outputs)
    outputs[found[0]] = found[1]
    return f"output {found[0]} by {found[1]}", replace(method.plan, outputs=tuple(outputs))


# Instructions


def _without(method: _Method, position: int) -> m.ExecutionPlan:
    """An instruction goes, with the jumps and the correspondence adjusted."""
    calls = [
        replace(call, destination_instruction=call.destination_instruction - (call.destination_instruction > position))
        if isinstance(call, m.JumpFalseCall)
        else call
        for call in method.calls
    ]
    del calls[position]
    moved = {here: there - (there > position) for here, there in method.moved.items() if there != position}
    method.moved.clear()
    method.moved.update(moved)
    return method.with_calls(calls)


@_kind
def _instruction_dropped(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """An instruction that is missing."""
    position = method.pick([p for p, call in enumerate(method.calls) if not isinstance(call, m.JumpFalseCall)])
    return None if position is None else (f"instruction {position}", _without(method, position))


@_kind
def _write_back_dropped(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """What changes a tensor in place, state most often."""
    positions = []
    for position in method.kernels():
        call = method.calls[position]
        assert isinstance(call, m.KernelCall)
        if method.operator(call).partition(".")[0].endswith("_"):
            positions.append(position)
    position = method.pick(positions)
    return None if position is None else (f"instruction {position}", _without(method, position))


@_kind
def _copy_for_an_alias(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """A copy goes and its output is laid over its input, whether that is written again or not."""
    positions = []
    for position in method.kernels():
        call = method.calls[position]
        assert isinstance(call, m.KernelCall)
        if not isinstance(method.plan.values[call.args[-1]], m.Tensor) or len(call.args) < 3:
            continue
        given = method.plan.values[call.args[0]]
        out = method.at(call.args[-1])
        name = method.operator(call)
        if (
            isinstance(given, m.Tensor)
            and given.allocation_info
            and out.allocation_info
            and given.nbytes >= out.nbytes
            and ("copy" in name or "clone" in name)
        ):
            positions.append(position)
    position = method.pick(positions)
    if position is None:
        return None
    call = method.calls[position]
    assert isinstance(call, m.KernelCall)
    place = method.at(call.args[0]).allocation_info
    out = call.args[-1]
    method.plan = method.with_value(out, replace(method.at(out), allocation_info=place))
    return f"instruction {position}, value {out}", _without(method, position)


@_kind
def _view_for_an_alias(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """A view that sets sizes at run time goes, and its output is a fixed alias."""
    positions = []
    for position in method.kernels():
        call = method.calls[position]
        assert isinstance(call, m.KernelCall)
        if method.operator(call) == "executorch_prim::et_view.default" and method.at(call.args[0]).allocation_info:
            positions.append(position)
    position = method.pick(positions)
    if position is None:
        return None
    call = method.calls[position]
    assert isinstance(call, m.KernelCall)
    place = method.at(call.args[0]).allocation_info
    out = call.args[-1]
    method.plan = method.with_value(out, replace(method.at(out), allocation_info=place))
    return f"instruction {position}, value {out}", _without(method, position)


@_kind
def _instructions_reordered(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """Two neighbours in the other order, and the correspondence as if nothing had happened, or with it."""
    positions = [
        position
        for position in range(len(method.calls) - 1)
        if not any(isinstance(call, m.JumpFalseCall) for call in method.calls[position : position + 2])
    ]
    position = method.pick(positions)
    if position is None:
        return None
    calls = method.calls
    calls[position], calls[position + 1] = calls[position + 1], calls[position]
    if method.random.random() < 0.5:
        swap = {position: position + 1, position + 1: position}
        method.moved.update({here: swap.get(there, there) for here, there in method.moved.items()})
    return f"instructions {position} and {position + 1}", method.with_calls(calls)


@_kind
def _other_operator(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """Another operator that takes as many arguments."""
    position = method.pick(method.kernels())
    call = method.calls[position] if position is not None else None
    if not isinstance(call, m.KernelCall):
        return None
    others = {
        other.op_index
        for other in method.calls
        if isinstance(other, m.KernelCall) and len(other.args) == len(call.args) and other.op_index != call.op_index
    }
    other = method.pick(sorted(others))
    if other is None:
        return None
    calls = method.calls
    calls[position] = replace(call, op_index=other)
    return f"instruction {position} by operator {other}", method.with_calls(calls)


# Control flow


@_kind
def _other_side_of_a_merge(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """A move from another tensor."""
    moves = [p for p, call in enumerate(method.calls) if isinstance(call, m.MoveCall)]
    position = method.pick(moves)
    if position is None:
        return None
    call = method.calls[position]
    assert isinstance(call, m.MoveCall)
    if not isinstance(method.plan.values[call.move_from], m.Tensor):
        return None
    other = method.pick(method.like(call.move_from))
    if other is None:
        return None
    calls = method.calls
    calls[position] = replace(call, move_from=other)
    return f"instruction {position} from {other}", method.with_calls(calls)


@_kind
def _other_jump(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """A jump to the next instruction, or to the one before."""
    jumps = [p for p, call in enumerate(method.calls) if isinstance(call, m.JumpFalseCall)]
    position = method.pick(jumps)
    if position is None:
        return None
    call = method.calls[position]
    assert isinstance(call, m.JumpFalseCall)
    target = call.destination_instruction + method.random.choice((-1, 1))
    if not position < target <= len(method.calls):
        return None
    calls = method.calls
    calls[position] = replace(call, destination_instruction=target)
    return f"instruction {position} to {target}", method.with_calls(calls)


@_kind
def _initial_value_dropped(method: _Method) -> tuple[str, m.ExecutionPlan] | None:
    """State that begins with zeros."""
    index = method.pick([index for index, tensor in method.plan.tensors() if tensor.has_initial_value])
    if index is None:
        return None
    return f"value {index}", method.with_value(index, replace(method.at(index), data_buffer_idx=0))
