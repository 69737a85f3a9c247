"""Layout of a project's static memory: arenas for planned buffers, and memory for inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etdev.errors import RunnerError
from etdev.inspection.planned_memory import method_memories
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs
from etdev.program.analysis.quantized_ends import QuantizedEnd, describing_methods, quantized_ends
from etdev.program.analysis.storage import MethodMemory
from etdev.program.bank_report import BankUse
from etdev.runner.identifiers import identifiers

IO_ALIGNMENT = 64
"""Alignment in bytes of each input and output that is not in planned memory."""


@dataclass(frozen=True, slots=True)
class ArenaBank:
    """A memory bank of the target's board."""

    name: str
    identifier: str
    """The name in small letters, as a C++ identifier."""
    capacity: int
    """Size in bytes."""

    @property
    def constant(self) -> str:
        """Name of the constant with the bank's size."""
        return f"kBank{_capitalized(self.identifier)}Bytes"

    @property
    def section(self) -> str:
        """Name of the section with the bank's arenas.

        GCC and Clang store no bytes of sections whose names start with ``.bss.``. With ``-fdata-sections``, they put a
        variable into ``.bss.NAME``. This section's name contains ``-``, and no variable's name can contain ``-``. So no
        other variable gets into this section.
        """
        return f".bss.etdev-bank.{self.identifier}"


@dataclass(frozen=True, slots=True)
class Arena:
    """Static memory for a planned buffer of one or several methods."""

    index: int
    """Memory id of the planned buffer."""
    method: str | None
    """C++ name of the only method that uses the arena; None if all methods with this memory id share the arena."""
    size: int
    """Size in bytes: the maximum over the methods that use the arena."""
    use: str
    """Kind of content, for a comment: ``state``, ``temporaries``, or both."""
    bank: ArenaBank | None = None
    """Memory bank that holds the arena; None if the program has no banks, or if they are unknown."""

    @property
    def label(self) -> str:
        """Text that identifies the planned buffer: the identifier of its bank or, without banks, its memory id."""
        return str(self.index) if self.bank is None else self.bank.identifier

    @property
    def local_constant(self) -> str:
        """Name of the constant with the arena's size, without the method's namespace."""
        return f"kArena{_capitalized(self.label)}Bytes"

    @property
    def constant(self) -> str:
        """Name of the constant with the arena's size, relative to the project's namespace."""
        return self.local_constant if self.method is None else f"{self.method}::{self.local_constant}"

    @property
    def name(self) -> str:
        """Name of the arena, which is a part of the names of variables and macros."""
        return f"arena_{self.label}" if self.method is None else f"arena_{self.label}_{self.method}"


@dataclass(frozen=True, slots=True)
class InputSlot:
    """Place of a method's input in the memory for inputs and outputs."""

    value: m.Value
    offset: int
    """Offset in bytes in the memory for inputs and outputs; 0 if the input is not a tensor."""


@dataclass(frozen=True, slots=True)
class OutputSlot:
    """Place of an output tensor that is not in planned memory."""

    output: int
    """Position among the method's outputs."""
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class MethodLayout:
    """Static memory of one method."""

    name: str
    identifier: str
    """C++ name of the method."""
    buffers: tuple[tuple[int, int], ...]
    """Memory id and size in bytes of each planned buffer, in order."""
    arenas: tuple[Arena, ...]
    """Arena of each planned buffer, in the order of ``buffers``."""
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    plan: m.ExecutionPlan
    ends: tuple[QuantizedEnd, ...] = ()
    """Quantized inputs and outputs."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Static memory of a project, except the pools."""

    methods: tuple[MethodLayout, ...]
    arenas: tuple[Arena, ...]
    io: int
    """Size in bytes of the memory for inputs and outputs, which all methods share."""


def make_layout(
    program: m.Program,
    where: str,
    inputs: Mapping[str, DelegateInputs] | None = None,
    banks: Sequence[BankUse] = (),
) -> Layout:
    """Return the layout of a program's static memory.

    The layout omits the constant methods that describe quantized inputs and outputs: a project has constants instead.
    ``inputs`` maps methods to the number of inputs of each delegate call. ``where`` is the program's location in
    errors. ``banks`` are the memory banks that the program was built for. Raises :class:`~etdev.errors.RunnerError` if
    the program uses devices or the runtime cannot load the program.
    """
    left_out = describing_methods(program)
    found = zip(program.execution_plan, method_memories(program, inputs), strict=True)
    plans, memories = zip(*((plan, memory) for plan, memory in found if plan.name not in left_out), strict=True)
    ends = quantized_ends(program)
    _refuse_devices(plans, where)
    names = identifiers(plan.name for plan in plans)
    arenas = _arenas(plans, names, memories, _arena_banks(banks))
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
            ends=ends.get(plan.name, ()),
        )
        for plan, name, slots in zip(plans, names, io, strict=True)
    )
    return Layout(methods, tuple(arenas.values()), max((slots[2] for slots in io), default=0))


def plan_alignment(program: m.Program) -> int:
    """Return the largest power of two, from 16 to 128, that divides all offsets in a program's memory plan."""
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
                    f"method {plan.name!r} has planned memory on {device}, but a runner has memory only on the host",
                    where=where,
                    hint="build a target whose partitioners have no `device`",
                )
        for index, tensor in plan.tensors():
            if not tensor.device.is_host:
                raise RunnerError(
                    f"value {index} of method {plan.name!r} is on {tensor.device}, but a runner has memory only on the "
                    "host",
                    where=where,
                    hint="build a target whose partitioners have no `device`",
                )


def _arena_banks(banks: Sequence[BankUse]) -> dict[int, ArenaBank]:
    """Map each memory id to its bank."""
    names = identifiers(bank.name.lower() for bank in banks)
    return {bank.index: ArenaBank(bank.name, name, bank.capacity) for bank, name in zip(banks, names, strict=True)}


def _arenas(
    plans: Sequence[m.ExecutionPlan],
    names: Sequence[str],
    memories: Sequence[MethodMemory | str],
    banks: Mapping[int, ArenaBank],
) -> dict[tuple[int, str | None], Arena]:
    """Map each memory id and method to an arena; the method is None for a shared arena.

    Methods share the arena of a memory id if no method overwrites another method's state. Methods always share arenas
    in banks, because the link plans all methods together. In all other cases, each method has its own arena.

    A method can overwrite another method's state with temporaries and, in buffer 1, also with its own state.
    """
    found: dict[tuple[int, str | None], Arena] = {}
    for index in range(1, max((len(plan.non_const_buffer_sizes) for plan in plans), default=0)):
        users = [number for number, plan in enumerate(plans) if index < len(plan.non_const_buffer_sizes)]
        used = [number for number in users if plans[number].non_const_buffer_sizes[index]]
        kept = [_state(memories[number], index) for number in used]
        state, temporary = any(item[0] for item in kept), any(item[1] for item in kept)
        use = "state and temporaries" if state and temporary else "state" if state else "temporaries"
        risky = len(used) > 1 and state and (temporary or index == 1)
        if index in banks or not risky or _is_apart([memories[number] for number in used], index):
            sizes = [plans[number].non_const_buffer_sizes[index] for number in users]
            found[index, None] = Arena(index, None, max(sizes), use, banks.get(index))
        else:
            for number in users:
                size = plans[number].non_const_buffer_sizes[index]
                found[index, names[number]] = Arena(index, names[number], size, use)
    return found


def _is_apart(memories: Sequence[MethodMemory | str], index: int) -> bool:
    """Return True if no method overwrites another method's state in a buffer.

    In buffer 1, state of each method is private. In other buffers, methods share state at the same address.
    """
    ranges: list[tuple[int, bool, int, int]] = []
    for number, memory in enumerate(memories):
        if isinstance(memory, str):
            return False
        ranges += [
            (number, storage.persistent, storage.offset, storage.offset + storage.size)
            for storage in memory.storages
            if storage.memory_id == index and storage.size
        ]
    states = [item for item in ranges if item[1]]
    return not any(
        one != other and start < end and begin < stop and (not persistent or index == 1)
        for one, _, start, stop in states
        for other, persistent, begin, end in ranges
    )


def _state(memory: MethodMemory | str, index: int) -> tuple[bool, bool]:
    """Return two bools: True if a buffer contains state, and True if it contains temporaries.

    If the method's use of memory is unknown, assume that buffer 1 contains both. Assume that other buffers contain only
    state. ExecuTorch and etdev store shared state in buffers without temporaries.
    """
    if isinstance(memory, str):
        return True, index == 1
    found = {storage.persistent for storage in memory.storages if storage.memory_id == index and storage.size}
    return True in found, False in found


def _io(plan: m.ExecutionPlan, where: str) -> tuple[tuple[InputSlot, ...], tuple[OutputSlot, ...], int]:
    """Return the slots of a method's inputs and outputs, and the size in bytes of the memory for them.

    All inputs that also have planned memory share one slot, at the end of this memory. The runtime copies an input from
    the slot to planned memory before the next input is written.
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
        if index in moved or index in owned:  # A branch or the caller provides the memory.
            continue
        owned[index] = end
        slots.append(OutputSlot(position, end, value.nbytes))
        end = _align(end + value.nbytes)
    staged = max((value.nbytes for _, value in inputs if isinstance(value, m.Tensor)), default=0)
    needed = any(isinstance(value, m.Tensor) for _, value in inputs) or bool(slots)
    found = tuple(
        InputSlot(value, owned.get(index, end) if isinstance(value, m.Tensor) else 0) for index, value in inputs
    )
    planned = any(isinstance(value, m.Tensor) and index not in owned for index, value in inputs)
    size = end + (staged if planned else 0)
    return found, tuple(slots), max(_align(size), IO_ALIGNMENT) if needed else 0


def _refuse_unbounded(plan: m.ExecutionPlan, value: m.Value, position: int, where: str) -> None:
    if isinstance(value, m.Tensor) and value.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND:
        raise RunnerError(
            f"output {position} of method {plan.name!r} has sizes without a maximum, which the runtime rejects",
            where=where,
            hint="state a maximum for each dynamic dimension",
        )


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _align(size: int) -> int:
    return -(-size // IO_ALIGNMENT) * IO_ALIGNMENT
