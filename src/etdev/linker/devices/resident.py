"""State that stays on a device between calls, and delegates that write its new content in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from etdev.decisions import Elision
from etdev.devices import HOST, Device
from etdev.linker.devices.items import find_items
from etdev.linker.edit import placed_at, with_instructions
from etdev.linker.options import LinkOptions
from etdev.linker.state import State
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import tensors
from etdev.program.analysis.flow import FlowGraph
from etdev.program.analysis.storage import MethodMemory
from etdev.program.delegates import ALIAS_SAFE, delegate_devices

_COPY = "aten::copy_"


def write_in_state(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Let delegates on devices write the new content of state in place. Remove the ``copy_`` into that state."""
    plan, memory, devices = method.plan, method.memory, delegate_devices(method.plan)
    if not devices or "write_back" not in options.elide:
        return Changed(method)
    values = list(plan.values)
    found = []
    for position, (state, new, *_) in ((at, call.args) for at, call, name in method.kernels() if name == _COPY):
        if _may_write(plan, memory, devices, position, state, new):
            there, temporary = memory.reaching.places[state], memory.storages[memory.of[new]]
            for value in temporary.values:
                inside = memory.reaching.places[value].start - temporary.offset
                values[value] = placed_at(values[value], m.AllocationDetails(there.buffer, there.start + inside))
            found.append(Elision(position, _COPY, "placed", temporary.size, kind="write_back"))
    gone: dict[int, Sequence[m.Instruction]] = {item.instruction: () for item in found}
    plan, moved = with_instructions(replace(plan, values=tuple(values)), gone)
    return Changed(replace(method, plan=plan), moved, found)


def _may_write(
    plan: m.ExecutionPlan, memory: MethodMemory, devices: Mapping[int, Device], position: int, state: int, new: int
) -> bool:
    """Return whether the delegate that computes ``new`` may write ``new`` to the bytes of ``state``.

    ``position`` is the position of the ``copy_`` from ``new`` to ``state``.
    """
    reaching = memory.reaching
    kept, temporary = (_own_storage(plan, memory, value) for value in (state, new))
    if kept is None or temporary is None or state in reaching.references or new in reaching.references:
        return False
    if any(isinstance(call, m.FreeCall) and call.value_index in (state, new) for call in reaching.flow.instructions):
        return False
    one, other = plan.values[state], plan.values[new]
    assert isinstance(one, m.Tensor)
    assert isinstance(other, m.Tensor)
    same = (one.scalar_type, one.sizes, one.dim_order) == (other.scalar_type, other.sizes, other.dim_order)
    if not same or not memory.storages[kept].persistent or memory.storages[temporary].persistent:
        return False
    writes = memory.storages[temporary].writes
    taken = {*memory.storages[temporary].values} & {*plan.inputs, *plan.outputs}
    if len(writes) != 1 or memory.storages[kept].writes != (position + 1,) or taken:
        return False
    source = writes[0] - 1
    call = reaching.flow.instructions[source] if source >= 0 else None
    if source not in devices or not isinstance(call, m.DelegateCall):
        return False
    if not _always_follows(reaching.flow, source, position):
        return False
    first = source + 1 if plan.delegates[call.delegate_index].id in ALIAS_SAFE else source
    return not any(first <= use.position < position and memory.of[use.place] == kept for use in reaching.uses)


def _always_follows(flow: FlowGraph, first: int, second: int) -> bool:
    """Return whether the second instruction runs exactly once after each run of the first instruction.

    This is the case if no jump enters or leaves the code between the two instructions.
    """
    starts = [block.start for block in flow.blocks] + [len(flow.instructions)]
    return first < second and all(
        (first <= block.end - 1 < second) == (first < starts[after] <= second)
        for block in flow.blocks
        for after in block.successors
    )


def _own_storage(plan: m.ExecutionPlan, memory: MethodMemory, value: int) -> int | None:
    """Return the index of a tensor's storage if the tensor is static and fills the storage; otherwise None."""
    number = memory.of.get(value)
    tensor = plan.values[value]
    if number is None or not isinstance(tensor, m.Tensor) or tensor.nbytes != memory.storages[number].size:
        return None
    return number if tensor.is_static else None


def find_resident_state(
    methods: Sequence[Method], devices: Sequence[Mapping[int, Device]], state: Sequence[State]
) -> list[dict[int, Device]]:
    """Find the state that stays on a device between calls. Return one map for each method, from values to devices.

    State stays on a device if only delegates on that device access the state, in all methods that share it. State with
    an initial value in the file stays on the host, because the host loads that value.
    """
    homes: list[dict[int, Device]] = [{} for _ in methods]
    if not any(devices):
        return homes
    devices_of = [_devices_of_state(method, found) for method, found in zip(methods, devices, strict=True)]
    for item in state:
        members = [(index, methods[index].memory.of.get(value)) for index, value, _ in item.members]
        places = set[Device]().union(
            *(devices_of[index].get(number, set()) for index, number in members if number is not None)
        )
        if len(places) == 1 and HOST not in places and None not in dict(members).values():
            home = places.pop()
            for index, number in set(members):
                assert number is not None
                homes[index].update(dict.fromkeys(methods[index].memory.storages[number].values, home))
    return homes


def _devices_of_state(method: Method, devices: Mapping[int, Device]) -> dict[int, set[Device]]:
    """Return a map from each storage of state to the devices that access that state.

    Include the host if the state must be on the host.
    """
    plan, memory = method.plan, method.memory
    items = find_items(plan, memory)
    found: dict[int, set[Device]] = {}
    for number, storage in enumerate(memory.storages):
        if storage.persistent:
            tensors_there = [plan.values[value] for value in storage.values]
            loaded = any(isinstance(tensor, m.Tensor) and tensor.has_initial_value for tensor in tensors_there)
            hidden = any(
                items.of[value] in items.fixed or value in memory.reaching.references for value in storage.values
            )
            found[number] = {HOST} if loaded or hidden else set()
    for value, device in _accesses(method, devices):
        number = memory.of.get(value, -1)
        if number in found:
            found[number].add(device)
    return found


def _accesses(method: Method, devices: Mapping[int, Device]) -> Iterator[tuple[int, Device]]:
    plan, reaching = method.plan, method.memory.reaching
    for position, effects in enumerate(reaching.effects):
        device = devices.get(position, HOST)
        for value in (*effects.reads, *effects.writes, *effects.updates, *effects.fills, *(effects.move or ())):
            yield value, device
    for use in reaching.uses:
        yield use.place, devices.get(use.position, HOST)
    for call in reaching.flow.instructions:
        # Instructions that only read sizes, or free a value, run on the host.
        if isinstance(call, m.KernelCall | m.FreeCall):
            found = (call.value_index,) if isinstance(call, m.FreeCall) else call.args
            yield from ((value, HOST) for value in tensors(plan, found))
    for value in tensors(plan, (*plan.inputs, *plan.outputs)):
        yield value, HOST
