"""Placement of tensors on the devices of their delegates, with copies between host and devices.

Each delegate call on a device gets replicas of its arguments on that device.

1. The linker inserts copies to devices. A delegate needs its inputs on its device. A write to an item on the host or
   on another device makes the replica out of date.
2. The linker inserts copies to the host in the same way. Each copy from step 1 counts as an instruction that reads on
   the host. So content that one device writes and another device reads goes through the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from etdev.devices import Device
from etdev.linker.devices.holders import Holders
from etdev.linker.devices.items import Items, find_items
from etdev.linker.devices.placement import AmbiguousSourceError, Placement, WantedDevices
from etdev.linker.devices.replicas import Replicas
from etdev.linker.devices.to_devices import copy_to_devices
from etdev.linker.devices.to_host import copy_to_host
from etdev.linker.work import Changed, Method
from etdev.program import model as m
from etdev.program.analysis.effects import tensors
from etdev.program.analysis.storage import MethodMemory


def place_tensors(
    method: Method, devices: Mapping[int, Device], wanted: WantedDevices
) -> tuple[Changed, Mapping[int, int]]:
    """Place the arguments of each delegate call in ``devices`` on the call's device, and insert the required copies.

    Also return a map from values to replicas, for state that stays on a device.
    """
    if not devices and not wanted.inputs and not wanted.outputs and not wanted.state:
        return Changed(method), {}
    items = find_items(method.plan, method.memory)
    while True:
        try:
            return _place(method, _placement(method, devices, wanted, items))
        except AmbiguousSourceError as ambiguous:
            items = items.with_fixed(ambiguous.item)


def _placement(method: Method, devices: Mapping[int, Device], wanted: WantedDevices, items: Items) -> Placement:
    plan, memory = method.plan, method.memory
    kept = _persistent(memory)
    written = {value for position in devices for value in memory.reaching.effects[position].writes}
    # Values without a name, in the bytes of state, that delegates write: they are outputs of these calls.
    outputs_in_state = {value for value in kept & written if not _has_name(plan, value)}
    constants = {value for value, tensor in plan.tensors() if tensor.is_constant and value in items.of}
    entering = {*kept, *constants, *tensors(plan, plan.inputs)}
    named = {value for value in kept if _has_name(plan, value)}
    return Placement(
        plan,
        memory,
        method.inputs,
        devices,
        wanted,
        items,
        Holders(tensors(plan, plan.inputs), named | constants, memory, items),
        Replicas(plan, items, outputs_in_state),
        state={items.of[value]: device for value, device in wanted.state.items()},
        given={items.of[plan.inputs[position]]: device for position, device in wanted.inputs.items()},
        filled=frozenset(items.of[value] for value in entering),
    )


def _place(method: Method, placement: Placement) -> tuple[Changed, Mapping[int, int]]:
    """Insert copies to devices, then copies to the host. Raise ``AmbiguousSourceError`` if that is not possible."""
    replicas = placement.replicas
    _bring_ends(placement)
    plan, moved = copy_to_devices(placement)
    plan, again = copy_to_host(placement, plan, moved)
    state = {value: replicas.of[value, device] for value, device in placement.wanted.state.items()}
    method = replace(
        method,
        plan=replace(plan, values=replicas.values(), non_const_buffer_device=replicas.buffers()),
        persistent=method.persistent - state.keys() | set(state.values()),
        neighbors=replicas.first,
    )
    return Changed(method, {position: again[after] for position, after in moved.items()}), state


def _bring_ends(placement: Placement) -> None:
    """Add replicas of the inputs and outputs that the caller keeps on devices, and of state that stays on a device."""
    for positions, indices in placement.ends():
        for position, device in positions.items():
            placement.replicas.get(indices[position], device, planned=False)
    # Named values come first, because the replica gets the name of the first value.
    for value, device in sorted(
        placement.wanted.state.items(), key=lambda found: (not _has_name(placement.plan, found[0]), found[0])
    ):
        placement.replicas.get(value, device, named=True)


def _persistent(memory: MethodMemory) -> set[int]:
    return {value for item in memory.storages if item.persistent for value in item.values}


def _has_name(plan: m.ExecutionPlan, value: int) -> bool:
    tensor = plan.values[value]
    return isinstance(tensor, m.Tensor) and tensor.name is not None
