"""Linked programs for devices, broken on purpose in the ways in which such a link can be wrong.

:mod:`validator.reads` judges each mutant. In most, some instruction reads other content; each of those has to be found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from etdev.devices import HOST, Device, parse_device
from etdev.program import model as m
from validator.drafts import D2H, H2D, Draft, NoneThereError, arguments_of

DEVICES = (parse_device("cuda:0"), parse_device("cuda:1"))


@dataclass(frozen=True)
class DeviceMutant:
    """Broken program."""

    kind: str
    what: str
    """Description of the change."""
    program: m.Program
    names: Mapping[str, tuple[int, ...]]
    """Per method, the position that each instruction had before the change."""


_Kind: TypeAlias = Callable[[Draft], str]
KINDS: dict[str, _Kind] = {}
"""Name → function that changes a method and describes the change."""


def _kind(function: _Kind) -> _Kind:
    KINDS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def device_mutants(name: str, program: m.Program, each: int, seed: int) -> Iterator[DeviceMutant]:
    """Yield up to ``each`` different mutants of each kind; equal seeds yield equal mutants."""
    for kind, change in KINDS.items():
        chance = random.Random(f"{seed} {name} {kind}")
        known = {program.execution_plan}
        for _ in range(each * 4):
            plans = list(program.execution_plan)
            number = chance.randrange(len(plans))
            draft = Draft(plans[number], chance)
            try:
                what = change(draft)
            except NoneThereError:
                continue
            plans[number] = draft.plan
            if tuple(plans) in known:
                continue
            known.add(tuple(plans))
            names = {plan.name: tuple(range(len(plan.chains[0].instructions))) for plan in plans}
            names[draft.plan.name] = tuple(draft.names)
            mutant = replace(program, execution_plan=tuple(plans))
            yield DeviceMutant(kind, f"{draft.plan.name}: {what}", mutant, names)
            if len(known) > each:
                break


def _same(one: Device, other: Device) -> bool:
    return one == other


def _other(one: Device, other: Device) -> bool:
    return one != other


def _another_device(draft: Draft, device: Device) -> Device:
    return draft.pick([each for each in (HOST, *DEVICES) if each != device])


# Copies


@_kind
def _copy_removed(draft: Draft) -> str:
    """Remove a copy."""
    position, _ = draft.pick(draft.copies())
    draft.remove(position)
    return f"instruction {position}"


@_kind
def _copy_earlier(draft: Draft) -> str:
    """Move a copy before the writer of its source, or before an earlier reader of its target."""
    position, call = draft.pick(draft.copies())
    before = [at for at in draft.mentions(call.args[0]) if at < position]
    to = draft.pick(before)
    draft.move(position, to)
    return f"instruction {position} to {to}"


@_kind
def _copy_later(draft: Draft) -> str:
    """Move a copy after a reader of its target."""
    position, call = draft.pick(draft.copies())
    behind = [at for at in draft.mentions(call.args[1]) if at > position]
    to = draft.pick(behind)
    draft.move(position, to)
    return f"instruction {position} to {to}"


@_kind
def _copy_from_another(draft: Draft) -> str:
    """Copy from another tensor of the same form on the same device."""
    position, call = draft.pick(draft.copies())
    other = draft.pick(draft.like(call.args[0], device=_same))
    draft.set_argument(position, 0, other)
    return f"instruction {position} from {other}"


@_kind
def _copy_to_another(draft: Draft) -> str:
    """Copy to another tensor of the same form on the same device."""
    position, call = draft.pick(draft.copies())
    other = draft.pick(draft.like(call.args[1], device=_same))
    draft.set_call(position, replace(call, args=(call.args[0], other, other)))
    return f"instruction {position} to {other}"


@_kind
def _copy_of_the_other_direction(draft: Draft) -> str:
    """Copy in the other direction: exchange the operator, its arguments, or both."""
    position, call = draft.pick(draft.copies())
    source, target = call.args[:2]
    operator = call.op_index
    way = draft.random.randrange(3)
    if way != 1:
        operator = draft.operator(D2H if draft.name_of(call) == H2D else H2D)
    if way != 0:
        source, target = target, source
    draft.set_call(position, m.KernelCall(operator, (source, target, target)))
    return f"instruction {position}, {('operator', 'arguments', 'both')[way]}"


# Devices


@_kind
def _buffer_on_another_device(draft: Draft) -> str:
    """Change the device of a buffer in the table only."""
    buffer = draft.random.randrange(1, len(draft.plan.non_const_buffer_sizes))
    device = _another_device(draft, draft.plan.buffer_device(buffer))
    draft.set_buffer_device(buffer, device)
    return f"buffer {buffer} on {device}"


@_kind
def _buffer_and_tensors_on_another_device(draft: Draft) -> str:
    """Change the device of a buffer in the table and of all tensors in it."""
    buffer = draft.random.randrange(1, len(draft.plan.non_const_buffer_sizes))
    device = _another_device(draft, draft.plan.buffer_device(buffer))
    draft.set_buffer_device(buffer, device)
    for index in draft.planned():
        if draft.place(index).memory_id == buffer:
            draft.set_device(index, device)
    return f"buffer {buffer} on {device}"


@_kind
def _tag_of_another_device(draft: Draft) -> str:
    """Change the device of a tensor."""
    index = draft.pick(draft.planned())
    device = _another_device(draft, draft.at(index).device)
    draft.set_device(index, device)
    return f"value {index} on {device}"


@_kind
def _tensor_in_a_buffer_of_another_device(draft: Draft) -> str:
    """Move a tensor, with all at its place, to the memory of another device, and change their device."""
    index = draft.pick(draft.planned())
    mine, own = draft.place(index), draft.at(index).device
    buffers = range(1, len(draft.plan.non_const_buffer_sizes))
    buffer = draft.pick([each for each in buffers if draft.plan.buffer_device(each) != own])
    for other in draft.aliases(index):
        draft.set_place(other, buffer, draft.place(other).memory_offset - mine.memory_offset)
        draft.set_device(other, draft.plan.buffer_device(buffer))
    return f"values at {index} in buffer {buffer}"


@_kind
def _delegate_on_another_device(draft: Draft) -> str:
    """Run a delegate on another device than it was lowered for."""
    number = draft.random.randrange(max(len(draft.plan.delegates), 1))
    delegate = draft.pick(draft.plan.delegates[number : number + 1])
    (spec,) = (spec for spec in delegate.compile_specs if spec.key == "target_device")
    device = _another_device(draft, parse_device(spec.value.decode()))
    changed = replace(delegate, compile_specs=(replace(spec, value=str(device).encode()),))
    delegates = list(draft.plan.delegates)
    delegates[number] = changed
    draft.plan = replace(draft.plan, delegates=tuple(delegates))
    return f"delegate {number} on {device}"


# Arguments


@_kind
def _argument_from_another_device(draft: Draft) -> str:
    """Pass a tensor of the same form on another device to a delegate or a kernel."""
    return _other_argument(draft, _other)


@_kind
def _argument_of_the_same_device(draft: Draft) -> str:
    """Pass another tensor of the same form to a delegate."""
    return _other_argument(draft, _same, (m.DelegateCall,))


def _other_argument(
    draft: Draft, device: Callable[[Device, Device], bool], kinds: tuple[type, ...] = (m.KernelCall, m.DelegateCall)
) -> str:
    copies = {at for at, _ in draft.copies()}
    position, number, other = draft.pick(
        [
            (at, number, other)
            for at, call in enumerate(draft.calls)
            if isinstance(call, kinds) and at not in copies
            for number, arg in enumerate(arguments_of(call))
            if isinstance(draft.plan.values[arg], m.Tensor)
            for other in draft.like(arg, device=device)
        ]
    )
    draft.set_argument(position, number, other)
    return f"argument {number} of instruction {position} is {other}"


# Addresses


@_kind
def _lifetime_shortened(draft: Draft) -> str:
    """Move a tensor, with all at its place, to the start of one that is in use at the same time."""
    index = draft.pick(draft.planned())
    old, new = draft.place(index), draft.place(draft.pick(draft.neighbours(index)))
    for other in draft.aliases(index):
        offset = new.memory_offset + draft.place(other).memory_offset - old.memory_offset
        draft.set_place(other, new.memory_id, offset)
    return f"values at {index} to {new.memory_offset} of buffer {new.memory_id}"


@_kind
def _shifted_into_a_neighbour(draft: Draft) -> str:
    """Move a tensor by a few bytes into one that is in use at the same time."""
    index = draft.pick(draft.planned())
    mine, size = draft.place(index), draft.at(index).nbytes
    other = draft.pick(draft.neighbours(index))
    there, room = draft.place(other), draft.at(other).nbytes
    step = draft.random.choice((4, 16, 64))
    before = there.memory_offset < mine.memory_offset
    offset = there.memory_offset + (room - step if before else step - size)
    draft.set_place(index, mine.memory_id, offset)
    return f"value {index} to {offset} of buffer {mine.memory_id}"


@_kind
def _shifted(draft: Draft) -> str:
    """Move a tensor by a few bytes."""
    index = draft.pick(draft.planned())
    place = draft.place(index)
    step = draft.random.choice((4, 16, 64, -4, -16, -64))
    draft.set_place(index, place.memory_id, place.memory_offset + step)
    return f"value {index} by {step}"
