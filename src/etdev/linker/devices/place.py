"""Placement of tensors on the devices of their delegates, with copies between host and devices.

Each delegate call on a device gets replicas of its arguments there. Copies to devices are placed first. A delegate
needs its inputs on its device, and a write anywhere else invalidates the content there. Then copies to the host are
placed in the same way, with the copies to devices as readers. So content that one device wrote and another one needs
goes through the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from etdev.devices import Device
from etdev.linker.devices.items import Items, sort_items
from etdev.linker.devices.names import Names
from etdev.linker.devices.replicas import Replicas
from etdev.linker.devices.setting import Setting, UnclearError, Wanted
from etdev.linker.devices.to_devices import copy_to_devices
from etdev.linker.devices.to_host import copy_to_host
from etdev.linker.work import Changed, Method
from etdev.program import model as m
from etdev.program.analysis.effects import tensors
from etdev.program.analysis.storage import MethodMemory


def place_tensors(method: Method, devices: Mapping[int, Device], wanted: Wanted) -> tuple[Changed, Mapping[int, int]]:
    """Give each delegate call of ``devices`` tensors on its device, and insert the copies that this requires.

    Also return the new values of the state that stays on a device.
    """
    if not devices and not wanted.inputs and not wanted.outputs and not wanted.state:
        return Changed(method), {}
    items = sort_items(method.plan, method.memory)
    while True:
        try:
            return _place(method, _setting(method, devices, wanted, items))
        except UnclearError as unclear:
            items = items.with_fixed(unclear.item)


def _setting(method: Method, devices: Mapping[int, Device], wanted: Wanted, items: Items) -> Setting:
    plan, memory = method.plan, method.memory
    kept = _persistent(memory)
    written = {value for position in devices for value in memory.reaching.effects[position].writes}
    # Values that delegates write in place of state that has another name.
    apart = {value for value in kept & written if not _has_name(plan, value)}
    constants = {value for value, tensor in plan.tensors() if tensor.is_constant and value in items.of}
    entering = {*kept, *constants, *tensors(plan, plan.inputs)}
    named = {value for value in kept if _has_name(plan, value)}
    return Setting(
        plan,
        memory,
        method.inputs,
        devices,
        wanted,
        items,
        Names(tensors(plan, plan.inputs), named | constants, memory, items),
        Replicas(plan, items, apart),
        state={items.of[value]: device for value, device in wanted.state.items()},
        given={items.of[plan.inputs[position]]: device for position, device in wanted.inputs.items()},
        filled=frozenset(items.of[value] for value in entering),
    )


def _place(method: Method, setting: Setting) -> tuple[Changed, Mapping[int, int]]:
    """Place copies to devices, then copies to the host."""
    replicas = setting.replicas
    _bring_ends(setting)
    plan, moved = copy_to_devices(setting)
    plan, again = copy_to_host(setting, plan, moved)
    state = {value: replicas.of[value, device] for value, device in setting.wanted.state.items()}
    method = replace(
        method,
        plan=replace(plan, values=replicas.values(), non_const_buffer_device=replicas.buffers()),
        persistent=method.persistent - state.keys() | set(state.values()),
        neighbors=replicas.first,
    )
    return Changed(method, {position: again[after] for position, after in moved.items()}), state


def _bring_ends(setting: Setting) -> None:
    """Add replicas of inputs and outputs that the caller owns, and of state."""
    for positions, indices in setting.ends():
        for position, device in positions.items():
            setting.replicas.get(indices[position], device, planned=False)
    # Named values come first.
    for value, device in sorted(
        setting.wanted.state.items(), key=lambda found: (not _has_name(setting.plan, found[0]), found[0])
    ):
        setting.replicas.get(value, device, named=True)


def _persistent(memory: MethodMemory) -> set[int]:
    return {value for item in memory.storages if item.persistent for value in item.values}


def _has_name(plan: m.ExecutionPlan, value: int) -> bool:
    tensor = plan.values[value]
    info = tensor.extra_tensor_info if isinstance(tensor, m.Tensor) else None
    return info is not None and info.fully_qualified_name is not None
