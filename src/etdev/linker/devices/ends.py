"""Inputs and outputs that stay on a device.

The caller owns the device memory of these tensors, so the linker does not plan that memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from etdev.devices import Device
from etdev.linker.devices.items import Items, find_items
from etdev.linker.devices.placement import WantedDevices
from etdev.linker.io import CallerOwnedError
from etdev.linker.options import CallerOwned, LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory

Ends: TypeAlias = tuple[Mapping[int, Device], Mapping[int, Device]]
"""Two maps: from input positions to devices, and from output positions to devices."""
_GAP = 64
"""Gap in bytes between two tensors that :func:`add_host_memory` places."""


def positions_on_devices(owned: CallerOwned, before: Ends) -> tuple[frozenset[int], frozenset[int]]:
    """Return the positions of the inputs to keep on devices, and the positions of the outputs to keep on devices.

    ``owned`` contains the positions that the caller requests. ``before`` contains the inputs and outputs that were on a
    device before the link.
    """
    return owned.device_inputs | before[0].keys(), owned.device_outputs | before[1].keys()


def add_host_memory(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Assign host memory to inputs and outputs that stay on devices. Instructions on the host use this memory."""
    plan, owned = method.plan, options.caller.get(method.plan.name, CallerOwned())
    values = list(plan.values)
    ends = [
        tensor.allocation_info.memory_offset + tensor.nbytes
        for _, tensor in plan.tensors()
        if tensor.allocation_info is not None and tensor.allocation_info.memory_id == 1
    ]
    end = max(ends, default=0)
    found = set()
    for positions, indices in zip(
        positions_on_devices(owned, method.device_ends), (plan.inputs, plan.outputs), strict=True
    ):
        for value in (indices[position] for position in sorted(positions) if 0 <= position < len(indices)):
            tensor = values[value]
            if not isinstance(tensor, m.Tensor) or tensor.is_constant:
                continue
            found.add(value)
            if tensor.allocation_info is None and tensor.shape_dynamism is not m.TensorShapeDynamism.DYNAMIC_UNBOUND:
                end = (end + 2 * _GAP - 1) // _GAP * _GAP
                values[value] = replace(tensor, allocation_info=m.AllocationDetails(1, end))
                end += tensor.nbytes
    return Changed(replace(method, plan=replace(plan, values=tuple(values)), caller_device_values=frozenset(found)))


def wanted_placement(
    method: Method, devices: Mapping[int, Device], homes: Mapping[int, Device], options: LinkOptions
) -> WantedDevices:
    """Return the devices on which a method's inputs, outputs and state stay.

    An input stays on the device of the first delegate that reads the input. An output stays on the device of the last
    delegate that writes the output. Inputs and outputs that were on a device before the link keep that device.
    ``homes`` maps values to devices, for state that stays on a device. Raises
    :class:`~etdev.linker.io.CallerOwnedError` for an input or output that cannot stay on a device.
    """
    plan, memory = method.plan, method.memory
    positions = positions_on_devices(options.caller.get(plan.name, CallerOwned()), method.device_ends)
    found: tuple[dict[int, Device], dict[int, Device]] = ({}, {})
    if not any(positions):
        return WantedDevices(*found, homes)
    items = find_items(plan, memory)
    there = {
        indices[position]
        for indices, wanted in zip((plan.inputs, plan.outputs), positions, strict=True)
        for position in wanted
        if 0 <= position < len(indices)
    }
    for kind, indices, wanted, known, places in zip(
        ("input", "output"), (plan.inputs, plan.outputs), positions, method.device_ends, found, strict=True
    ):
        for position in sorted(wanted):
            where = f"{kind} {position} of method {plan.name!r}"
            if not 0 <= position < len(indices):
                hint = f"choose one of the method's {len(indices)} {kind}s"
                raise CallerOwnedError(f"there is no {where}", plan.name, hint)
            reason = _why_not(plan, memory, items, indices[position], there)
            device = known.get(position) or _delegate_device(memory, items, devices, indices[position], kind)
            if reason is None and device is None:
                reason = f"no delegate on a device {'reads' if kind == 'input' else 'computes'} it"
            if reason is not None or device is None:
                hint = f'set this {kind} to "host"'
                raise CallerOwnedError(f"{where} cannot stay on a device: {reason}", plan.name, hint)
            places[position] = device
    return WantedDevices(*found, homes)


def _why_not(
    plan: m.ExecutionPlan, memory: MethodMemory, items: Items, value: int, there: Collection[int]
) -> str | None:
    tensor = plan.values[value]
    if not isinstance(tensor, m.Tensor):
        return f"it is not a tensor but a value of type {type(tensor).__name__}"
    if tensor.is_constant:
        return "it is a constant of the program"
    if (plan.inputs + plan.outputs).count(value) > 1:
        return "it occurs more than once among the inputs and outputs"
    item = items.of[value]
    if item in items.fixed or value in memory.reaching.references:
        return "it shares its bytes with other values, or may be one of several tensors"
    if value in memory.of and memory.storages[memory.of[value]].persistent:
        return "it is state, which is kept between calls"
    others = [
        other for other in items.values[item] if other != value and not _can_share_tensor(plan, value, other, there)
    ]
    if others:
        return f"it shares its bytes with other values ({', '.join(map(str, others))})"
    return None


def _can_share_tensor(plan: m.ExecutionPlan, value: int, other: int, there: Collection[int]) -> bool:
    """Return whether ``value`` and ``other``, which share bytes, can be one tensor on a device.

    ``value`` is an input or output on a device. ``there`` contains all inputs and outputs on devices. Return True if
    both values have the same element type, sizes and dimension order, and ``other`` is not in ``there``.
    """
    one, two = plan.values[value], plan.values[other]
    assert isinstance(one, m.Tensor)
    assert isinstance(two, m.Tensor)
    same = (one.scalar_type, one.sizes, one.dim_order) == (two.scalar_type, two.sizes, two.dim_order)
    return same and other not in there


def _delegate_device(
    memory: MethodMemory, items: Items, devices: Mapping[int, Device], value: int, kind: str
) -> Device | None:
    """Return the device of the first delegate that reads this input, or of the last one that writes this output.

    Return None if there is no such delegate on a device.
    """
    order: Sequence[int] = sorted(devices, reverse=kind == "output")
    for position in order:
        effects = memory.reaching.effects[position]
        touched = effects.reads if kind == "input" else (*effects.writes, *effects.updates)
        if items.of[value] in {items.of[other] for other in touched}:
            return devices[position]
    return None
