"""Addresses: assign an address in a planned buffer to each storage of each method.

Temporaries of a method stay in their buffer, and each buffer is planned separately. In a program with one method, state
is in use at all times and is planned with the temporaries. With more methods, state has separate buffers, and has the
same addresses in all methods. Some loaders allocate the same buffers for all methods. Without a separate buffer for
state, the temporaries of one method would then overwrite the state of another method.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from etdev import planner
from etdev.devices import HOST, Device
from etdev.errors import LinkError
from etdev.linker.banks import place_in_banks
from etdev.linker.edit import placed_at
from etdev.linker.options import LinkOptions
from etdev.linker.state import State, state_name
from etdev.linker.work import Method
from etdev.planner import Buffer, Plan, PlanError, Problem
from etdev.program import model as m
from etdev.program.bank_report import BankReport
from etdev.program.delegates import XNNPACK
from etdev.program.info import BufferInfo
from etdev.program.used import used_values

_XNNPACK_PADDING = 64
"""Number of bytes that XNNPACK's kernels may read after the end of a buffer.

ExecuTorch's planner adds the same number of bytes.
"""


def assign_addresses(
    methods: Sequence[Method], state: Sequence[State], options: LinkOptions, *, alone: bool
) -> tuple[list[tuple[m.ExecutionPlan, tuple[BufferInfo, ...]]], BankReport | None]:
    """Assign an address to every storage. Return ``(plan, buffers)`` for each method, and the report on the banks.

    ``state`` must contain all state of these methods. ``alone`` must be True if only one method of the program has
    planned memory. Raises :class:`~etdev.errors.LinkError` if a planner fails, if its plan is wrong, or if the storages
    do not fit into the banks.
    """
    places: list[dict[int, tuple[int, int]]] = [{} for _ in methods]
    plans: list[dict[int, Plan]] = [{} for _ in methods]
    banks = max(options.banks.ids) if options.banks else 0
    numbers = _number_buffers(methods, separate_state=not alone, banks=banks)
    report = None
    if options.banks is not None:
        found = place_in_banks(
            methods,
            state,
            options.banks,
            alignment=options.alignment,
            padding=max((padding(method.plan) for method in methods), default=0),
            planner=options.planner,
            planner_name=options.planner_name,
        )
        places, report = found.places, found.report
    if not alone:
        _place_state(methods, state, numbers, places, options)
    for index, method in enumerate(methods):
        arenas: dict[int, list[int]] = defaultdict(list)
        for number, storage in enumerate(method.memory.storages):
            if number not in places[index]:
                device = method.plan.buffer_device(storage.memory_id)
                arenas[numbers.temporary.get(device, storage.memory_id)].append(number)
        for buffer, items in sorted(arenas.items()):
            where = f"method {method.plan.name!r}, buffer {buffer}"
            plan = _plan([_buffer(method, number, options) for number in items], options, where)
            plans[index][buffer] = plan
            for number, offset in zip(items, plan.offsets, strict=True):
                places[index][number] = buffer, offset
    linked = [
        _with_addresses(method, places[index], plans[index], numbers, bounded=report is None)
        for index, method in enumerate(methods)
    ]
    return linked, report


@dataclass(frozen=True, slots=True)
class _BufferNumbers:
    """Numbers of the buffers on devices and of the buffers for state. Temporaries on the host keep their buffers."""

    temporary: Mapping[Device, int]
    """Maps each device to the buffer that holds its temporaries."""
    state: Mapping[Device, int]

    def devices(self) -> dict[int, Device]:
        """Return the device of each buffer that is not on the host."""
        found = {buffer: device for device, buffer in (*self.temporary.items(), *self.state.items())}
        return {buffer: device for buffer, device in sorted(found.items()) if not device.is_host}


def _number_buffers(methods: Sequence[Method], *, separate_state: bool, banks: int) -> _BufferNumbers:
    """Return buffer numbers that apply to all methods: first the buffers on the host, then the buffers on each device.

    ``separate_state`` is True if state has buffers of its own. On the host, the buffer for state is buffer 2, or the
    first number after the buffers of temporaries. ``banks`` is the highest memory id of a bank, or 0 without banks.
    Banks hold all state and all temporaries on the host.
    """
    temporary: dict[Device, int] = {}
    state: dict[Device, int] = {}
    used = {
        (method.plan.buffer_device(buffer), kept, buffer)
        for method in methods
        for buffer, kept in {(item.memory_id, item.persistent and separate_state) for item in method.memory.storages}
    }
    found = {(device, kept) for device, kept, _ in used}
    last = max((buffer for device, kept, buffer in used if device.is_host and not kept), default=1)
    last = banks or last
    for device, kept in sorted({*found, *_empty_devices(methods)}):
        if (kept and not banks) or not device.is_host:
            last += 1
            (state if kept else temporary)[device] = last
    return _BufferNumbers(temporary, state)


def _empty_devices(methods: Sequence[Method]) -> Iterable[tuple[Device, bool]]:
    """Return ``(device, False)`` for each device that has an empty tensor.

    An empty tensor needs an address. ``False`` means that the tensor is not state.
    """
    return {
        (tensor.device, False)
        for method in methods
        for _, tensor in method.plan.tensors()
        if not tensor.device.is_host and tensor.allocation_info is not None and not tensor.nbytes
    }


def padding(plan: m.ExecutionPlan) -> int:
    """Return the number of bytes that each buffer of a method needs after its last tensor."""
    return _XNNPACK_PADDING if any(delegate.id == XNNPACK for delegate in plan.delegates) else 0


def _place_state(
    methods: Sequence[Method],
    state: Sequence[State],
    numbers: _BufferNumbers,
    places: Sequence[dict[int, tuple[int, int]]],
    options: LinkOptions,
) -> None:
    on: dict[Device, list[State]] = defaultdict(list)
    for item in state:
        index, value, _ = item.members[0]
        method = methods[index]
        on[method.plan.buffer_device(method.memory.reaching.places[value].buffer)].append(item)
    for device, kept in on.items():
        if device not in numbers.state:
            continue  # It is in the banks.
        always = [Buffer(item.size, 0, 1, options.alignment, name=item.name) for item in kept]
        # There is nothing to optimize: all pieces of state are in use at once.
        plan = planner.make_plan(Problem(tuple(always)), "naive")
        for item, offset in zip(kept, plan.offsets, strict=True):
            for index, value, inside in item.members:
                memory = methods[index].memory
                storage = memory.storages[memory.of[value]]
                begin = memory.reaching.places[value].start - storage.offset
                places[index][memory.of[value]] = numbers.state[device], offset + inside - begin


def _buffer(method: Method, number: int, options: LinkOptions) -> Buffer:
    storage = method.memory.storages[number]
    name = state_name(method.plan, storage.values) or ", ".join(f"value {value}" for value in storage.values[:3])
    return Buffer(storage.size, storage.start, storage.end, options.alignment, name=name)


_known_plan = lru_cache(maxsize=8)(planner.make_plan)
"""``make_plan`` with a cache, because a build links the same storages several times."""
_MOST_REMEMBERED = 20_000
"""Maximum number of buffers in a problem whose plan is cached."""


def _plan(buffers: Iterable[Buffer], options: LinkOptions, where: str) -> Plan:
    problem = Problem(tuple(buffers))
    try:
        if isinstance(options.planner, str) and len(problem.buffers) <= _MOST_REMEMBERED:
            return _known_plan(problem, options.planner)
        return planner.make_plan(problem, options.planner, name=options.planner_name)
    except PlanError as error:
        hint = "fix the planner, or use the planner `best`"
        raise LinkError(f"the plan is wrong: {error}", where=where, hint=hint) from error


def _with_addresses(
    method: Method,
    places: Mapping[int, tuple[int, int]],
    plans: Mapping[int, Plan],
    numbers: _BufferNumbers,
    *,
    bounded: bool,
) -> tuple[m.ExecutionPlan, tuple[BufferInfo, ...]]:
    """Return the method with its new addresses, and the method's buffers.

    ``places`` maps each storage to its buffer and offset. ``plans`` maps each planned buffer to its plan. If
    ``bounded`` is True, the size of a buffer without a plan is also its lower bound. If ``bounded`` is False, as for
    banks, such a buffer has no lower bound.
    """
    values, ends = _placed(method, places, plans, numbers)
    kept: dict[int, list[bool]] = defaultdict(list)
    for number, (buffer, _) in places.items():
        kept[buffer].append(method.memory.storages[number].persistent)
    devices = numbers.devices()
    more = {buffer: 0 if buffer in devices else padding(method.plan) for buffer in ends}
    sizes = [0] * (max(ends, default=0) + 1)
    for buffer, end in ends.items():
        sizes[buffer] = end + more[buffer]
    elsewhere = tuple(
        m.NonConstBufferDevice(buffer, device.type, device.index)
        for buffer, device in devices.items()
        if buffer in ends
    )
    plan = replace(method.plan, values=values, non_const_buffer_sizes=tuple(sizes), non_const_buffer_device=elsewhere)
    reports = tuple(
        BufferInfo(
            index=buffer,
            device=str(devices.get(buffer, HOST)),
            size=sizes[buffer],
            lower_bound=_lower_bound(plans.get(buffer), ends[buffer] if bounded else None, more[buffer]),
            state=all(kept.get(buffer, [False])),
        )
        for buffer in sorted(ends)
    )
    return plan, reports


def _lower_bound(plan: Plan | None, end: int | None, more: int) -> int | None:
    bound = plan.lower_bound if plan else end
    return None if bound is None else bound + more


def _placed(
    method: Method,
    places: Mapping[int, tuple[int, int]],
    plans: Mapping[int, Plan],
    numbers: _BufferNumbers,
) -> tuple[tuple[m.Value, ...], dict[int, int]]:
    """Return the method's values with their new addresses, and the size in bytes of each buffer that the values use."""
    ends: dict[int, int] = {buffer: plan.size for buffer, plan in plans.items()}
    values = list(method.plan.values)
    outputs = frozenset(method.plan.outputs)
    for number, (buffer, offset) in places.items():
        storage = method.memory.storages[number]
        used = storage.start < storage.end
        for value in storage.values:
            inside = method.memory.reaching.places[value].start - storage.offset
            # A storage that is never in use needs no address. But a runtime takes an output without one for the
            # caller's.
            planned = used or value in outputs
            values[value] = placed_at(values[value], m.AllocationDetails(buffer, offset + inside) if planned else None)
            if planned:
                ends[buffer] = max(ends.get(buffer, 0), offset + storage.size)
    used_here = set(used_values(method.plan))  # Values that nothing uses are dropped from the file.
    for value, tensor in method.plan.tensors():
        if tensor.allocation_info is not None and value in used_here and value not in method.memory.of:
            # An empty tensor takes no bytes, but the runtime requires an address inside a buffer.
            buffer = numbers.temporary.get(tensor.device, 1)
            values[value] = placed_at(tensor, m.AllocationDetails(buffer, 0))
            ends.setdefault(buffer, 0)
    # Drop buffers in which no tensor of the file has an address. So a second link gives the same result.
    named = {
        value.allocation_info.memory_id
        for number, value in enumerate(values)
        if number in used_here and isinstance(value, m.Tensor) and value.allocation_info is not None
    }
    return tuple(values), {buffer: end for buffer, end in ends.items() if buffer in named}
