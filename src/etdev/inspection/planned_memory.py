"""Use of planned memory in a file: sizes and lower bounds of buffers, their peaks, and state in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from etdev.errors import LinkError
from etdev.inspection.copies import OutputInPlace, outputs_in_place
from etdev.inspection.peaks import Peak, peaks
from etdev.linker.layout import padding
from etdev.linker.state import State, kept_by_others, state_by_address, state_name
from etdev.planner import Buffer, Problem, lower_bound
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs
from etdev.program.analysis.storage import MethodMemory, Storage, method_memory
from etdev.program.delegates import delegate_inputs, unsplit_call

_MOST_ALIGNMENT = 16
"""Maximum alignment in bytes, used by ExecuTorch's planner and etdev."""


@dataclass(frozen=True, slots=True)
class BufferUse:
    """A planned buffer of a method."""

    index: int
    """The ``memory_id``."""
    device: str
    """Device such as ``cpu`` or ``cuda:0``."""
    size: int
    """Bytes."""
    lower_bound: int | None
    """Lower bound in bytes on any plan for the same tensors; None if unknown.

    It assumes lifetimes from the file's data flow, and the file's alignment.
    """


@dataclass(frozen=True, slots=True)
class StateUse:
    """State of a method, which it keeps from one call to the next."""

    name: str
    """Name in the module if the file has it, otherwise ``value 7``."""
    size: int
    """Bytes."""
    buffer: int
    """The ``memory_id`` of its buffer."""
    offset: int
    """Offset in bytes from the start of that buffer."""
    shared: bool
    """True if other methods have the same state at the same place."""
    initialized: bool
    """True if the file holds its initial value; otherwise it starts as zeros."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Planned memory of a method."""

    buffers: tuple[BufferUse, ...]
    state: tuple[StateUse, ...]
    peaks: tuple[Peak, ...]
    inplace: tuple[OutputInPlace, ...]
    unknown: str | None
    """Reason why lower bounds, state, peaks and outputs in place are unknown; None if they are known."""


def method_memories(
    program: Program, inputs: Mapping[str, DelegateInputs] | None = None
) -> tuple[MethodMemory | str, ...]:
    """Return each method's use of planned memory, from the file's data flow; or the reason why it is unknown.

    ``inputs`` has, per method, the number of inputs of its delegate calls if known; otherwise it is derived from the
    file. Raises nothing.
    """
    found: list[MethodMemory | str] = []
    for plan in program.execution_plan:
        split = (inputs or {}).get(plan.name) or delegate_inputs(plan)
        reason = unsplit_call(plan, split)
        try:
            found.append(method_memory(plan, split) if reason is None else reason)
        except LinkError as error:
            found.append(error.message)
    return tuple(found)


def memory_use(program: Program, memories: Sequence[MethodMemory | str]) -> tuple[MemoryUse, ...]:
    """Return the planned memory of each method from the results of :func:`method_memories`. Raises nothing."""
    known = {index: memory for index, memory in enumerate(memories) if not isinstance(memory, str)}
    unknown = {index: memory for index, memory in enumerate(memories) if isinstance(memory, str)}
    state = _state(program, known)
    several = len(program.execution_plan) > 1
    return tuple(
        MemoryUse(
            tuple(_buffer_use(plan, buffer, known.get(index), several=several) for buffer in _buffers(plan)),
            tuple(state.get(index, ())),
            peaks(plan, known[index]) if index in known else (),
            outputs_in_place(plan, known[index]) if index in known else (),
            unknown.get(index),
        )
        for index, plan in enumerate(program.execution_plan)
    )


def _buffers(plan: m.ExecutionPlan) -> range:
    return range(1, len(plan.non_const_buffer_sizes))


def _buffer_use(plan: m.ExecutionPlan, buffer: int, memory: MethodMemory | None, *, several: bool) -> BufferUse:
    size = plan.non_const_buffer_sizes[buffer]
    bound = None
    if memory is not None:
        storages = [storage for storage in memory.storages if storage.memory_id == buffer]
        bound = lower_bound(_problem(storages, several=several)) + padding(plan)
        # A plan may rely on two branches never both running, which lifetimes over a range of instants do not show.
        bound = min(bound, size)
    return BufferUse(buffer, str(plan.buffer_device(buffer)), size, bound)


def _problem(storages: Iterable[Storage], *, several: bool) -> Problem:
    """Return the planning problem of a buffer.

    In a program with ``several`` methods, state stays at the place on which the others rely.
    """
    storages = tuple(storages)
    alignment = _MOST_ALIGNMENT
    for storage in storages:
        alignment = (alignment | storage.offset) & -(alignment | storage.offset)
    return Problem(
        tuple(
            Buffer(
                storage.size,
                storage.start,
                storage.end,
                alignment,
                pin=storage.offset if several and storage.persistent and storage.memory_id > 1 else None,
            )
            for storage in storages
        )
    )


def _state(program: Program, known: Mapping[int, MethodMemory]) -> dict[int, list[StateUse]]:
    """Return the state by method index, in the order of addresses."""
    numbers = list(known)
    plans = [program.execution_plan[index] for index in numbers]
    memories = list(known.values())
    for position, kept in enumerate(kept_by_others(memories)):
        if kept:
            memories[position] = method_memory(plans[position], delegate_inputs(plans[position]), kept)
    found: dict[int, list[StateUse]] = defaultdict(list)
    for state in state_by_address(plans, memories):
        for position in dict.fromkeys(member[0] for member in state.members):
            found[numbers[position]].append(_state_use(plans, memories[position], state, position))
    return {index: sorted(uses, key=lambda use: (use.buffer, use.offset)) for index, uses in found.items()}


def _name_elsewhere(plans: Sequence[m.ExecutionPlan], state: State) -> str | None:
    """Return the name that another method has for the state; a method that only writes it may have none."""
    names = (state_name(plans[position], (value,)) for position, value, _ in state.members)
    return next(filter(None, names), None)


def _state_use(plans: Sequence[m.ExecutionPlan], memory: MethodMemory, state: State, position: int) -> StateUse:
    plan = plans[position]
    values = [value for index, value, _ in state.members if index == position]
    places = [memory.reaching.places[value] for value in values]
    tensors = [plan.values[value] for value in values]
    return StateUse(
        name=state_name(plan, values) or _name_elsewhere(plans, state) or f"value {values[0]}",
        size=max(place.end for place in places) - min(place.start for place in places),
        buffer=places[0].buffer,
        offset=min(place.start for place in places),
        shared=state.shared,
        initialized=any(isinstance(tensor, m.Tensor) and tensor.has_initial_value for tensor in tensors),
    )
