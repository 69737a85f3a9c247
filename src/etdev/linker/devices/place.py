"""Placement of tensors on the devices of their delegates, with copies between host and devices.

Each delegate call on a device gets replicas of its arguments there. Copies to devices are placed first. A delegate
needs its inputs on its device, and a write anywhere else invalidates the content there. Then copies to the host are
placed in the same way, with the copies to devices as readers. So content that one device wrote and another one needs
goes through the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from etdev.devices import Device
from etdev.linker.devices.items import Items, sort_items
from etdev.linker.devices.names import Names
from etdev.linker.devices.replicas import Replicas
from etdev.linker.devices.setting import Setting, UnclearError, Wanted
from etdev.linker.devices.to_devices import copy_to_devices
from etdev.linker.devices.to_host import copy_to_host
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs, tensors
from etdev.program.analysis.storage import MethodMemory


@dataclass(frozen=True, slots=True)
class Placed:
    """A method whose tensors are on the devices that need them."""

    plan: m.ExecutionPlan
    moved: Mapping[int, int]
    """Positions of its instructions: before → after."""
    replicas: Mapping[int, int]
    """Added value → value that it replicates."""
    state: Mapping[int, int]
    """State that stays on a device → its new value."""


def place_tensors(
    plan: m.ExecutionPlan,
    memory: MethodMemory,
    inputs: DelegateInputs,
    devices: Mapping[int, Device],
    wanted: Wanted,
) -> Placed:
    """Give each delegate call of ``devices`` tensors on its device, and insert the copies that this requires."""
    items = sort_items(plan, memory)
    while True:
        try:
            return _place(_setting(plan, memory, inputs, devices, wanted, items))
        except UnclearError as unclear:
            items = items.with_fixed(unclear.item)


def _setting(
    plan: m.ExecutionPlan,
    memory: MethodMemory,
    inputs: DelegateInputs,
    devices: Mapping[int, Device],
    wanted: Wanted,
    items: Items,
) -> Setting:
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
        inputs,
        devices,
        wanted,
        items,
        Names(tensors(plan, plan.inputs), named | constants, memory, items),
        Replicas(plan, items, apart),
        state={items.of[value]: device for value, device in wanted.state.items()},
        given={items.of[plan.inputs[position]]: device for position, device in wanted.inputs.items()},
        filled=frozenset(items.of[value] for value in entering),
    )


def _place(setting: Setting) -> Placed:
    """Place copies to devices, then copies to the host."""
    replicas = setting.replicas
    _bring_ends(setting)
    plan, moved = copy_to_devices(setting)
    plan, again = copy_to_host(setting, plan, moved)
    return Placed(
        replace(plan, values=replicas.values(), non_const_buffer_device=replicas.buffers()),
        {position: again[after] for position, after in moved.items()},
        dict(replicas.first),
        {value: replicas.of[value, device] for value, device in setting.wanted.state.items()},
    )


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
