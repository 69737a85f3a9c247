"""Addresses: from the storages of each method to a plan of each buffer.

Temporaries of a method stay in the buffer that they are in, each buffer being planned by itself. State of a program
with one method is in use at all times, and lies among them. With more methods it gets a buffer of its own, program-wide
at addresses of its own: loaders that give all methods the same buffers would otherwise let the temporaries of one
method overwrite the state of another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from etdev import planner
from etdev.errors import LinkError
from etdev.linker.options import BufferReport, LinkOptions
from etdev.linker.state import State, state_name
from etdev.planner import Buffer, Plan, PlanError, Problem
from etdev.program import model as m
from etdev.program.storage import MethodMemory
from etdev.program.used import used_values

_XNNPACK_PADDING = 64
"""Bytes behind the end of a buffer that XNNPACK's kernels may read; upstream's planner adds as many."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method that gets new addresses."""

    plan: m.ExecutionPlan
    memory: MethodMemory


def lay_out(
    methods: Sequence[Method], state: Sequence[State], options: LinkOptions, *, alone: bool
) -> list[tuple[m.ExecutionPlan, tuple[BufferReport, ...]]]:
    """Give every storage an address, with the buffers that this takes.

    ``state`` is all that the methods keep between calls; a method that is ``alone`` is the only one of the program that
    has any memory. Raises :class:`~etdev.errors.LinkError` if a
    planner fails or its plan is wrong.
    """
    places: list[dict[int, tuple[int, int]]] = [{} for _ in methods]
    plans: list[dict[int, Plan]] = [{} for _ in methods]
    state_buffer = None if alone else _state_buffer(methods)
    if state_buffer is not None:
        _place_state(methods, state, state_buffer, places, options)
    for index, method in enumerate(methods):
        arenas: dict[int, list[int]] = defaultdict(list)
        for number, storage in enumerate(method.memory.storages):
            if number not in places[index]:
                arenas[storage.memory_id].append(number)
        for memory_id, numbers in sorted(arenas.items()):
            where = f"method {method.plan.name!r}, buffer {memory_id}"
            plan = _plan([_buffer(method, number, options) for number in numbers], options, where)
            plans[index][memory_id] = plan
            for number, offset in zip(numbers, plan.offsets, strict=True):
                places[index][number] = memory_id, offset
    return [_addressed(method, places[index], plans[index]) for index, method in enumerate(methods)]


def padding(plan: m.ExecutionPlan) -> int:
    """Bytes that each buffer of a method needs behind its last tensor."""
    return _XNNPACK_PADDING if any(delegate.id == "XnnpackBackend" for delegate in plan.delegates) else 0


def _state_buffer(methods: Sequence[Method]) -> int | None:
    """The buffer that all state goes to: 2, unless temporaries are there, then one behind them all."""
    if not any(storage.persistent for method in methods for storage in method.memory.storages):
        return None
    used = {item.memory_id for method in methods for item in method.memory.storages if not item.persistent}
    return 2 if max(used, default=1) < 2 else max(used) + 1


def _place_state(
    methods: Sequence[Method],
    state: Sequence[State],
    buffer: int,
    places: Sequence[dict[int, tuple[int, int]]],
    options: LinkOptions,
) -> None:
    always = [Buffer(item.size, 0, 1, options.alignment, name=item.name) for item in state]
    # Nothing to be planned: all of it is in use at once, each piece at its own address.
    plan = planner.make_plan(Problem(tuple(always)), "naive")
    for item, offset in zip(state, plan.offsets, strict=True):
        for index, value, inside in item.members:
            memory = methods[index].memory
            storage = memory.storages[memory.of[value]]
            begin = memory.reaching.places[value].start - storage.offset
            places[index][memory.of[value]] = buffer, offset + inside - begin


def _buffer(method: Method, number: int, options: LinkOptions) -> Buffer:
    storage = method.memory.storages[number]
    name = state_name(method.plan, storage.values) or ", ".join(f"value {value}" for value in storage.values[:3])
    return Buffer(storage.size, storage.start, storage.end, options.alignment, name=name)


def _plan(buffers: Iterable[Buffer], options: LinkOptions, where: str) -> Plan:
    try:
        return planner.make_plan(Problem(tuple(buffers)), options.planner, name=options.planner_name)
    except PlanError as error:
        raise LinkError(f"the plan is wrong: {error}", where=where, hint="mend the planner, or use `best`") from error


def _addressed(
    method: Method,
    places: Mapping[int, tuple[int, int]],
    plans: Mapping[int, Plan],
) -> tuple[m.ExecutionPlan, tuple[BufferReport, ...]]:
    """The method with these places, and how large its buffers have to be."""
    ends: dict[int, int] = {buffer: plan.size for buffer, plan in plans.items()}
    values = list(method.plan.values)
    for number, (buffer, offset) in places.items():
        storage = method.memory.storages[number]
        used = storage.start < storage.end
        for value in storage.values:
            inside = method.memory.reaching.places[value].start - storage.offset
            # What lies elsewhere whenever it is looked at needs no bytes; but an output without any is the caller's.
            planned = used or value in method.plan.outputs
            values[value] = _at(values[value], (buffer, offset + inside) if planned else None)
            if planned:
                ends[buffer] = max(ends.get(buffer, 0), offset + storage.size)
    used_here = set(used_values(method.plan))  # The others go from the file.
    for value, tensor in method.plan.tensors():
        if tensor.allocation_info is not None and value in used_here and value not in method.memory.of:
            # It takes no bytes, but the runtime wants an address inside a buffer.
            values[value] = _at(tensor, (1, 0))
            ends.setdefault(1, 0)
    kept: dict[int, list[bool]] = defaultdict(list)
    for number, (buffer, _) in places.items():
        kept[buffer].append(method.memory.storages[number].persistent)
    more = padding(method.plan)
    sizes = [0] * (max(ends, default=0) + 1)
    for buffer, end in ends.items():
        sizes[buffer] = end + more
    plan = replace(method.plan, values=tuple(values), non_const_buffer_sizes=tuple(sizes), non_const_buffer_device=())
    reports = tuple(
        BufferReport(
            index=buffer,
            device="cpu",
            size=sizes[buffer],
            lower_bound=(plans[buffer].lower_bound if buffer in plans else ends[buffer]) + more,
            tensors=sum(1 for place, _ in places.values() if place == buffer),
            state=all(kept.get(buffer, [False])),
        )
        for buffer in sorted(ends)
    )
    return plan, reports


def _at(value: m.Value, place: tuple[int, int] | None) -> m.Tensor:
    assert isinstance(value, m.Tensor)
    return replace(value, allocation_info=m.AllocationDetails(*place) if place else None)
