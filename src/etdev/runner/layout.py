"""Static memory of a generated project: arenas for planned buffers, and memory for inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etdev.errors import RunnerError
from etdev.inspection.planned_memory import method_memories
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs
from etdev.program.analysis.storage import MethodMemory
from etdev.runner.identifiers import identifiers

IO_ALIGNMENT = 64
"""Alignment in bytes of each input and output outside of planned memory."""


@dataclass(frozen=True, slots=True)
class Arena:
    """Static memory for a planned buffer, of one method or of several."""

    index: int
    """The program's memory id."""
    method: str | None
    """C++ name of the only method that uses the arena; None if all methods with this buffer share it."""
    size: int
    """Bytes: the largest size that a method needs."""
    use: str
    """Content of the arena, for a comment."""

    @property
    def constant(self) -> str:
        """Name of the constant with its size, in the namespace of the program."""
        name = f"kArena{self.index}Bytes"
        return name if self.method is None else f"{self.method}::{name}"

    @property
    def name(self) -> str:
        """Name in names of variables and macros."""
        return f"arena_{self.index}" if self.method is None else f"arena_{self.index}_{self.method}"


@dataclass(frozen=True, slots=True)
class InputSlot:
    """An input of a method."""

    value: m.Value
    offset: int
    """Offset of its bytes in the memory for inputs and outputs; 0 for an input that is not a tensor."""


@dataclass(frozen=True, slots=True)
class OutputSlot:
    """An output tensor that needs memory outside of planned memory."""

    output: int
    """Position among the outputs."""
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class MethodLayout:
    """Memory of one method."""

    name: str
    identifier: str
    """Its name in C++."""
    buffers: tuple[tuple[int, int], ...]
    """Memory id and size of each planned buffer, in order."""
    arenas: tuple[Arena, ...]
    """Arena of each planned buffer."""
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    plan: m.ExecutionPlan


@dataclass(frozen=True, slots=True)
class Layout:
    """Static memory of a project, without pools."""

    methods: tuple[MethodLayout, ...]
    arenas: tuple[Arena, ...]
    io: int
    """Bytes for inputs and outputs."""


def make_layout(program: m.Program, where: str, inputs: Mapping[str, DelegateInputs] | None = None) -> Layout:
    """Return the static memory for a program.

    ``inputs`` states, per method, how many arguments of each delegate call are inputs. Raises
    :class:`~etdev.errors.RunnerError` for a program on devices, or one that the runtime cannot load.
    """
    plans = program.execution_plan
    _refuse_devices(plans, where)
    names = identifiers(plan.name for plan in plans)
    arenas = _arenas(plans, names, method_memories(program, inputs))
    io = [_io(plan, where) for plan in plans]
    methods = tuple(
        MethodLayout(
            name=plan.name,
            identifier=name,
            buffers=tuple(enumerate(plan.non_const_buffer_sizes))[1:],
            arenas=tuple(
                arenas.get((index, None)) or arenas[index, name] for index in range(1, len(plan.non_const_buffer_sizes))
            ),
            inputs=slots[0],
            outputs=slots[1],
            plan=plan,
        )
        for plan, name, slots in zip(plans, names, io, strict=True)
    )
    return Layout(methods, tuple(arenas.values()), max((slots[2] for slots in io), default=0))


def plan_alignment(program: m.Program) -> int:
    """Return the largest power of two, from 16 to 128, that divides all addresses of a program's memory plan."""
    bits = 128
    for plan in program.execution_plan:
        for _, tensor in plan.tensors():
            if tensor.allocation_info is not None:
                bits |= tensor.allocation_info.memory_offset
    return max(bits & -bits, 16)


def _refuse_devices(plans: Sequence[m.ExecutionPlan], where: str) -> None:
    for plan in plans:
        for index in range(1, len(plan.non_const_buffer_sizes)):
            device = plan.buffer_device(index)
            if not device.is_host:
                raise RunnerError(
                    f"method {plan.name!r} has planned memory on {device}, and a runner has memory on the host only",
                    where=where,
                    hint="build a target whose partitioners have no `device`",
                )
        for index, tensor in plan.tensors():
            if not tensor.device.is_host:
                raise RunnerError(
                    f"value {index} of method {plan.name!r} is on {tensor.device}, and a runner runs on the host only",
                    where=where,
                    hint="build a target whose partitioners have no `device`",
                )


def _arenas(
    plans: Sequence[m.ExecutionPlan], names: Sequence[str], memories: Sequence[MethodMemory | str]
) -> dict[tuple[int, str | None], Arena]:
    """Return the arenas by memory id and method.

    Methods share an arena if it holds state in all of them, or in none. If it holds state of one method among
    temporaries, another method would overwrite that state.
    """
    found: dict[tuple[int, str | None], Arena] = {}
    for index in range(1, max((len(plan.non_const_buffer_sizes) for plan in plans), default=0)):
        users = [number for number, plan in enumerate(plans) if index < len(plan.non_const_buffer_sizes)]
        used = [number for number in users if plans[number].non_const_buffer_sizes[index]]
        kept = [_state(memories[number], index) for number in used]
        state, temporary = any(item[0] for item in kept), any(item[1] for item in kept)
        use = "state" if state and not temporary else "state and temporaries" if state else "temporaries"
        if len(used) < 2 or not (state and temporary):
            sizes = [plans[number].non_const_buffer_sizes[index] for number in users]
            found[index, None] = Arena(index, None, max(sizes), use)
        else:
            for number in users:
                size = plans[number].non_const_buffer_sizes[index]
                found[index, names[number]] = Arena(index, names[number], size, use)
    return found


def _state(memory: MethodMemory | str, index: int) -> tuple[bool, bool]:
    """Return whether a buffer holds state, and whether it holds temporaries.

    If the use of the memory is unknown, buffer 1 may hold both. ExecuTorch and etdev put state that methods share into
    other buffers, which hold nothing else.
    """
    if isinstance(memory, str):
        return True, index == 1
    found = {storage.persistent for storage in memory.storages if storage.memory_id == index and storage.size}
    return True in found, False in found


def _io(plan: m.ExecutionPlan, where: str) -> tuple[tuple[InputSlot, ...], tuple[OutputSlot, ...], int]:
    """Return the slots of a method's inputs and outputs, and the bytes for them.

    Planned inputs share one slot at the end: the runtime copies each of them before the next one is set.
    """
    end = 0
    owned: dict[int, int] = {}
    inputs = [(index, plan.values[index]) for index in plan.inputs]
    outputs = [(index, plan.values[index]) for index in plan.outputs]
    moved = {call.move_to for call in plan.instructions if isinstance(call, m.MoveCall)}
    slots = []
    for index, value in inputs:
        if isinstance(value, m.Tensor) and value.allocation_info is None and index not in owned:
            owned[index], end = end, _align(end + value.nbytes)
    for position, (index, value) in enumerate(outputs):
        _refuse_unbounded(plan, value, position, where)
        if not isinstance(value, m.Tensor) or value.allocation_info is not None or value.is_constant:
            continue
        if index in moved or index in owned:  # A branch or the caller gives it memory.
            continue
        owned[index] = end
        slots.append(OutputSlot(position, end, value.nbytes))
        end = _align(end + value.nbytes)
    staged = max((value.nbytes for _, value in inputs if isinstance(value, m.Tensor)), default=0)
    needed = any(isinstance(value, m.Tensor) for _, value in inputs) or bool(slots)
    found = tuple(
        InputSlot(value, owned.get(index, end) if isinstance(value, m.Tensor) else 0) for index, value in inputs
    )
    planned = any(slot.offset == end for slot in found if isinstance(slot.value, m.Tensor))
    size = end + (staged if planned else 0)
    return found, tuple(slots), max(_align(size), IO_ALIGNMENT) if needed else 0


def _refuse_unbounded(plan: m.ExecutionPlan, value: m.Value, position: int, where: str) -> None:
    if isinstance(value, m.Tensor) and value.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND:
        raise RunnerError(
            f"output {position} of method {plan.name!r} has sizes without a maximum, which the runtime does not load",
            where=where,
            hint="state a maximum for each dynamic dimension",
        )


def _align(size: int) -> int:
    return -(-size // IO_ALIGNMENT) * IO_ALIGNMENT
