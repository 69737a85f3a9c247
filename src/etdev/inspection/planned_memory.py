"""Planned memory of a program: its buffers, lower bounds on their sizes, and the state stored in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from etdev.errors import LinkError
from etdev.linker.layout import padding
from etdev.linker.state import State, kept_by_others, state_by_address, state_name
from etdev.planner import Buffer, Problem, lower_bound
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs
from etdev.program.analysis.storage import MethodMemory, Storage, method_memory
from etdev.program.delegates import delegate_inputs, unsplit_call
from etdev.program.footprint import planned_buffers
from etdev.program.info import BufferInfo, StateInfo

_MOST_ALIGNMENT = 16
"""Largest alignment, in bytes, that ExecuTorch's planner or etdev uses."""


def method_memories(
    program: Program, inputs: Mapping[str, DelegateInputs] | None = None
) -> tuple[MethodMemory | str, ...]:
    """Return each method's use of planned memory, or the reason why it is unknown. Never raises an error.

    The result is derived from the data flow in the file. ``inputs`` maps methods to the number of inputs of each
    delegate call. For methods that are not in ``inputs``, these numbers are derived from the file.
    """
    found: list[MethodMemory | str] = []
    for plan in program.execution_plan:
        split = _split(program, plan, inputs)
        reason = unsplit_call(plan, split)
        try:
            found.append(method_memory(plan, split) if reason is None else reason)
        except LinkError as error:
            found.append(error.message)
    return tuple(found)


def describe_buffers(plan: m.ExecutionPlan, memory: MethodMemory | str, *, several: bool) -> tuple[BufferInfo, ...]:
    """Return the planned buffers of a method; ``several`` is True if the program has more than one method."""
    buffers = planned_buffers(plan)
    if isinstance(memory, str):
        return buffers
    return tuple(_bounded(plan, buffer, memory, several=several) for buffer in buffers)


def _bounded(plan: m.ExecutionPlan, buffer: BufferInfo, memory: MethodMemory, *, several: bool) -> BufferInfo:
    storages = [storage for storage in memory.storages if storage.memory_id == buffer.index]
    bound = lower_bound(_problem(storages, several=several)) + padding(plan)
    # Lifetimes do not show that only one of two branches runs. A plan that uses this fact can need less than the bound.
    state = bool(storages) and all(storage.persistent for storage in storages)
    return replace(buffer, lower_bound=min(bound, buffer.size), state=state)


def _problem(storages: Iterable[Storage], *, several: bool) -> Problem:
    """Return the storages of one buffer as a planning problem.

    If the program has ``several`` methods, shared state is pinned to its offset, because other methods use that offset.
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


def _split(program: Program, plan: m.ExecutionPlan, inputs: Mapping[str, DelegateInputs] | None) -> DelegateInputs:
    return (inputs or {}).get(plan.name) or delegate_inputs(program, plan)


def describe_state(
    program: Program, known: Sequence[MethodMemory | str], inputs: Mapping[str, DelegateInputs] | None = None
) -> dict[int, tuple[StateInfo, ...]]:
    """Map the index of each method to the method's state, sorted by address.

    ``known`` is the result of :func:`method_memories` with the same ``inputs``. Methods whose use of memory is unknown
    are omitted.
    """
    numbers = [number for number, memory in enumerate(known) if not isinstance(memory, str)]
    plans = [program.execution_plan[index] for index in numbers]
    memories = [memory for memory in known if not isinstance(memory, str)]
    for position, kept in enumerate(kept_by_others(memories)):
        if kept:
            memories[position] = method_memory(plans[position], _split(program, plans[position], inputs), kept)
    found: dict[int, list[StateInfo]] = defaultdict(list)
    for state in state_by_address(plans, memories):
        for position in dict.fromkeys(member[0] for member in state.members):
            found[numbers[position]].append(_state(plans, memories[position], state, position))
    return {index: tuple(sorted(uses, key=lambda use: (use.buffer, use.offset))) for index, uses in found.items()}


def _name_elsewhere(plans: Sequence[m.ExecutionPlan], state: State) -> str | None:
    """Return the name of a state from any of the methods that use the state; None if it has no name.

    A method that only writes the state may lack the name.
    """
    names = (state_name(plans[position], (value,)) for position, value, _ in state.members)
    return next(filter(None, names), None)


def _state(plans: Sequence[m.ExecutionPlan], memory: MethodMemory, state: State, position: int) -> StateInfo:
    plan = plans[position]
    values = [value for index, value, _ in state.members if index == position]
    places = [memory.reaching.places[value] for value in values]
    tensors = [plan.values[value] for value in values]
    return StateInfo(
        name=state_name(plan, values) or _name_elsewhere(plans, state) or f"value {values[0]}",
        size=max(place.end for place in places) - min(place.start for place in places),
        buffer=places[0].buffer,
        offset=min(place.start for place in places),
        shared=state.shared,
        initialized=any(isinstance(tensor, m.Tensor) and tensor.has_initial_value for tensor in tensors),
    )
