"""Method of a linked program, with the changes that break it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from etdev.devices import Device
from etdev.program import model as m

Item = TypeVar("Item")

H2D, D2H = "et_copy::_h2d_copy", "et_copy::_d2h_copy"


class NoneThereError(LookupError):
    """Error for a method that has nothing of the kind to be broken."""


@dataclass
class Draft:
    """Method that is being changed."""

    plan: m.ExecutionPlan
    random: random.Random
    names: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = list(range(len(self.calls)))

    @property
    def calls(self) -> list[m.Instruction]:
        return list(self.plan.chains[0].instructions)

    # Queries

    def at(self, index: int) -> m.Tensor:
        tensor = self.plan.values[index]
        assert isinstance(tensor, m.Tensor)
        return tensor

    def place(self, index: int) -> m.AllocationDetails:
        place = self.at(index).allocation_info
        assert place is not None
        return place

    def planned(self) -> list[int]:
        return [index for index, tensor in self.plan.tensors() if tensor.allocation_info and tensor.nbytes]

    def pick(self, items: Sequence[Item]) -> Item:
        if not items:
            raise NoneThereError
        return self.random.choice(items)

    def name_of(self, call: m.Instruction) -> str:
        return self.plan.operators[call.op_index].name if isinstance(call, m.KernelCall) else ""

    def copies(self) -> list[tuple[int, m.KernelCall]]:
        return [
            (at, call)
            for at, call in enumerate(self.calls)
            if isinstance(call, m.KernelCall) and self.name_of(call) in (H2D, D2H)
        ]

    def mentions(self, index: int) -> list[int]:
        """Return the positions of the instructions that get a tensor, or a list with it."""
        lists = {
            number
            for number, value in enumerate(self.plan.values)
            if isinstance(value, m.TensorList | m.OptionalTensorList) and index in value.items
        }
        return [at for at, call in enumerate(self.calls) if {index, *lists} & {*arguments_of(call)}]

    def like(self, index: int, *, device: Callable[[Device, Device], bool]) -> list[int]:
        """Return other tensors of the same type and sizes, on a device that matches the first one's."""
        mine = self.at(index)
        form = mine.scalar_type, mine.sizes, mine.dim_order
        return [
            other
            for other, tensor in self.plan.tensors()
            if other != index
            and (tensor.scalar_type, tensor.sizes, tensor.dim_order) == form
            and tensor.allocation_info
            and device(mine.device, tensor.device)
        ]

    def neighbours(self, index: int) -> list[int]:
        """Return tensors elsewhere in the same buffer that are in use at the same time."""
        place, mine = self.place(index), self.mentions(index)
        found = []
        for other in self.planned():
            there, theirs = self.place(other), self.mentions(other)
            apart = there.memory_id != place.memory_id or there == place or not (mine and theirs)
            if not apart and mine[0] <= theirs[-1] and theirs[0] <= mine[-1]:
                found.append(other)
        return found

    def aliases(self, index: int) -> list[int]:
        """Return all tensors at the place of a tensor."""
        mine = self.place(index)
        end = mine.memory_offset + self.at(index).nbytes
        there = {other: self.place(other) for other in self.planned()}
        return [
            other
            for other, place in there.items()
            if place.memory_id == mine.memory_id and mine.memory_offset <= place.memory_offset < end
        ]

    # Changes

    def set_value(self, index: int, value: m.Value) -> None:
        values = list(self.plan.values)
        values[index] = value
        self.plan = replace(self.plan, values=tuple(values))

    def set_place(self, index: int, buffer: int, offset: int) -> None:
        tensor = self.at(index)
        if not 0 <= offset <= self.plan.non_const_buffer_sizes[buffer] - tensor.nbytes:
            raise NoneThereError
        self.set_value(index, replace(tensor, allocation_info=m.AllocationDetails(buffer, offset)))

    def set_device(self, index: int, device: Device) -> None:
        tensor = self.at(index)
        extra = replace(
            tensor.extra_tensor_info or m.ExtraTensorInfo(), device_type=device.type, device_index=device.index
        )
        self.set_value(index, replace(tensor, extra_tensor_info=extra))

    def set_buffer_device(self, buffer: int, device: Device) -> None:
        table = [entry for entry in self.plan.non_const_buffer_device if entry.buffer_idx != buffer]
        if not device.is_host:
            table.append(m.NonConstBufferDevice(buffer, device.type, device.index))
        table.sort(key=lambda entry: entry.buffer_idx)
        self.plan = replace(self.plan, non_const_buffer_device=tuple(table))

    def set_call(self, position: int, call: m.Instruction) -> None:
        calls = self.calls
        calls[position] = call
        self._set_calls(calls)

    def set_argument(self, position: int, number: int, value: int) -> None:
        call = self.calls[position]
        assert isinstance(call, m.KernelCall | m.DelegateCall)
        self.set_call(position, replace(call, args=(*call.args[:number], value, *call.args[number + 1 :])))

    def remove(self, position: int) -> m.Instruction:
        """Remove an instruction; jumps past it keep their destinations."""
        calls = self.calls
        gone = calls.pop(position)
        del self.names[position]
        self._set_calls([_led_on(call, position, -1) for call in calls])
        return gone

    def insert(self, position: int, call: m.Instruction, name: int) -> None:
        """Insert an instruction; jumps to the one after it keep their destination."""
        calls = [_led_on(each, position - 1, 1) for each in self.calls]
        calls.insert(position, call)
        self.names.insert(position, name)
        self._set_calls(calls)

    def move(self, position: int, to: int) -> None:
        """Move an instruction; ``to`` counts without it."""
        name = self.names[position]
        self.insert(to, self.remove(position), name)

    def operator(self, name: str) -> int:
        """Return the index of an operator; add it if the program lacks it."""
        wanted = m.Operator(name, "out")
        if wanted not in self.plan.operators:
            self.plan = replace(self.plan, operators=(*self.plan.operators, wanted))
        return self.plan.operators.index(wanted)

    def _set_calls(self, calls: Sequence[m.Instruction]) -> None:
        (chain,) = self.plan.chains
        self.plan = replace(self.plan, chains=(replace(chain, instructions=tuple(calls), stacktrace=()),))


def arguments_of(call: m.Instruction) -> tuple[int, ...]:
    """Return the values that an instruction names."""
    match call:
        case m.KernelCall() | m.DelegateCall():
            return call.args
        case m.MoveCall():
            return call.move_from, call.move_to
        case m.JumpFalseCall():
            return (call.cond_value_index,)
        case _:
            return ()


def _led_on(call: m.Instruction, behind: int, by: int) -> m.Instruction:
    """Adjust the destination of a jump past a position."""
    if not isinstance(call, m.JumpFalseCall) or call.destination_instruction <= behind:
        return call
    return replace(call, destination_instruction=call.destination_instruction + by)
