"""Inputs and outputs that stay on a device: the caller brings and takes them there, and nothing is planned for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etdev.devices import Device
from etdev.linker.devices.items import Items, sort_items
from etdev.linker.io import CallerOwnedError
from etdev.linker.options import CallerOwned
from etdev.program import model as m
from etdev.program.storage import MethodMemory


def left_on_devices(
    plan: m.ExecutionPlan,
    memory: MethodMemory,
    devices: Mapping[int, Device],
    owned: CallerOwned,
    before: tuple[Mapping[int, Device], Mapping[int, Device]],
) -> tuple[dict[int, Device], dict[int, Device]]:
    """The device of each input and output that stays on one, by position.

    An input stays on the device of the first delegate that reads it, an output on that of the last one that writes it;
    what is there ``before`` the link stays where it is. Raises :class:`~etdev.linker.io.CallerOwnedError` for one that
    cannot.
    """
    positions = owned.device_inputs | before[0].keys(), owned.device_outputs | before[1].keys()
    found: tuple[dict[int, Device], dict[int, Device]] = ({}, {})
    if not any(positions):
        return found
    items = sort_items(plan, memory)
    for kind, indices, wanted, known, places in zip(
        ("input", "output"), (plan.inputs, plan.outputs), positions, before, found, strict=True
    ):
        for position in sorted(wanted):
            where = f"{kind} {position} of method {plan.name!r}"
            if not 0 <= position < len(indices):
                raise CallerOwnedError(f"there is no {where}", plan.name, f"it has {len(indices)} {kind}s")
            reason = _why_not(plan, memory, items, indices[position])
            device = known.get(position) or _touched_by(memory, items, devices, indices[position], kind)
            if reason is None and device is None:
                reason = f"no delegate on a device {'reads' if kind == 'input' else 'computes'} it"
            if reason is not None or device is None:
                hint = 'bring it to the host: "host"'
                raise CallerOwnedError(f"{where} cannot be left on a device: {reason}", plan.name, hint)
            places[position] = device
    return found


def _why_not(plan: m.ExecutionPlan, memory: MethodMemory, items: Items, value: int) -> str | None:
    tensor = plan.values[value]
    if not isinstance(tensor, m.Tensor):
        return f"it is no tensor but a value of type {type(tensor).__name__}"
    if tensor.is_constant:
        return "it is a constant of the program"
    if (plan.inputs + plan.outputs).count(value) > 1:
        return "the method has it more than once among its inputs and outputs"
    item = items.of[value]
    if item in items.fixed or value in memory.reaching.references:
        return "it shares its bytes with other values, or is one of several"
    if value in memory.of and memory.storages[memory.of[value]].persistent:
        return "it is state, which is kept between calls"
    if len(items.names[item]) > 1:
        return f"it shares its bytes with other values ({', '.join(map(str, items.names[item]))})"
    return None


def _touched_by(
    memory: MethodMemory, items: Items, devices: Mapping[int, Device], value: int, kind: str
) -> Device | None:
    """The device of the first delegate that reads an input, or of the last one that writes an output."""
    order: Sequence[int] = sorted(devices, reverse=kind == "output")
    for position in order:
        effects = memory.reaching.effects[position]
        touched = effects.reads if kind == "input" else (*effects.writes, *effects.updates)
        if items.of[value] in {items.of[other] for other in touched}:
            return devices[position]
    return None
