"""Copies to devices. A delegate needs its inputs on its device; a write anywhere else invalidates them there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from etdev.devices import HOST, Device
from etdev.errors import LinkError
from etdev.linker.devices.copies import Insertions, copied, with_copies
from etdev.linker.devices.setting import Setting, UnclearError
from etdev.linker.devices.transfers import Facts, Spot, find_spots
from etdev.linker.edit import with_insertions
from etdev.program import model as m
from etdev.program.analysis.effects import Effects
from etdev.program.devices import D2H_COPY, H2D_COPY


def copy_to_devices(setting: Setting) -> tuple[m.ExecutionPlan, dict[int, int]]:
    """Insert copies to devices, and pass the tensors there to delegates.

    Return the method, and the positions of its instructions: before → after.
    """
    facts = Facts(len(setting.memory.reaching.effects))
    bits = {pair: facts.new() for pair in sorted(_pairs(setting))}
    _enter_instructions(setting, facts, bits)
    _enter_ends(setting, facts, bits)
    before: Insertions = defaultdict(list)
    behind = _fixed_copies(setting)
    for spot, found_bits in find_spots(setting.memory.reaching.flow, facts.needs()).items():
        where = behind if spot.after else before
        for (item, device), bit in bits.items():
            if bit & found_bits:
                name = setting.names.read_at(spot, item)
                if name is None:
                    raise UnclearError(item)
                where[spot.position] += copied(setting.plan, H2D_COPY, name, setting.replicas.get(name, device))
    return with_insertions(*with_copies(_with_arguments(setting), before, behind))


def _enter_instructions(setting: Setting, facts: Facts, bits: Mapping[tuple[int, Device], int]) -> None:
    """Record the facts that each instruction needs, makes and ends."""
    on = _by_item(bits)
    for position, found in enumerate(setting.memory.reaching.effects):
        device = setting.devices.get(position, HOST)
        for value in found.reads:
            facts.needed[position] |= bits.get((setting.items.of[value], device), 0)
        for value in (*found.writes, *found.updates, *found.fills, *_referring(setting, found)):
            for item in setting.items.changing(setting.items.of[value]):
                for other, bit in on[item]:
                    facts.ended[position] |= bit
                    if other == device and item == setting.items.of[value]:
                        facts.made[position] |= bit


def _referring(setting: Setting, found: Effects) -> Iterable[int]:
    """Return fixed values that the instruction makes another tensor."""
    to = (found.move or found.view or ())[1:]
    return (value for value in to if setting.items.of.get(value) in setting.items.fixed)


def _pairs(setting: Setting) -> set[tuple[int, Device]]:
    """Return each item with each device that accesses it."""
    found = {(setting.items.of[value], device) for value, device in setting.wanted.state.items()}
    for position, device in setting.devices.items():
        here = setting.memory.reaching.effects[position]
        found |= {(setting.items.of[value], device) for value in (*here.reads, *here.writes, *here.updates)}
    for positions, indices in setting.ends():
        found |= {(setting.items.of[indices[position]], device) for position, device in positions.items()}
    return found


def _enter_ends(setting: Setting, facts: Facts, bits: Mapping[tuple[int, Device], int]) -> None:
    """Record the facts that hold when the method begins, and those that must hold when it ends."""
    for (item, device), bit in bits.items():
        resident = setting.state.get(item) == device
        undefined = item not in setting.filled and item not in setting.items.fixed
        if resident or setting.given.get(item) == device or undefined:
            facts.at_entry |= bit
        if resident:
            facts.needed[-1] |= bit
    for position, device in setting.wanted.outputs.items():
        facts.needed[-1] |= bits[setting.items.of[setting.plan.outputs[position]], device]


def _fixed_copies(setting: Setting) -> Insertions:
    """Return copies to the host after each call, of items that are always on the host."""
    behind: Insertions = defaultdict(list)
    for position, device in setting.devices.items():
        found = setting.memory.reaching.effects[position]
        for value in dict.fromkeys((*found.writes, *found.updates)):
            if setting.items.of[value] in setting.items.fixed:
                behind[position] += copied(setting.plan, D2H_COPY, setting.replicas.get(value, device), value)
    return behind


def _argument(setting: Setting, position: int, number: int, value: int, device: Device) -> int:
    """Return the argument that a call on a device gets in place of a value."""
    found = setting.plan.values[value]
    if isinstance(found, m.TensorList | m.OptionalTensorList):
        raise LinkError(
            f"a delegate takes a list of tensors, value {value}, on {device}",
            where=f"method {setting.plan.name!r}, instruction {position}",
            hint="runtimes pass tensors one by one: lower the model again",
        )
    if not isinstance(found, m.Tensor):
        return value
    if number < setting.inputs[position]:
        at, item = Spot(position, after=False), setting.items.of[value]
        if setting.names.is_one_of_several(at, item):
            # State that stays there is not copied to. If no delegate writes it, its replica is an alias too.
            stays = setting.state.get(item) == device and setting.names.is_alias(value)
            return setting.replicas.get(value, device) if stays else setting.replicas.alias(value, device)
        value = setting.names.standing_for(value, at, item, setting.plan)
    return setting.replicas.get(value, device)


def _with_arguments(setting: Setting) -> m.ExecutionPlan:
    """Return the method with its calls, inputs and outputs on devices."""
    chains, base = [], 0
    for chain in setting.plan.chains:
        calls = list(chain.instructions)
        for number, call in enumerate(calls):
            device = setting.devices.get(base + number)
            if isinstance(call, m.DelegateCall) and device is not None:
                args = (
                    _argument(setting, base + number, index, value, device) for index, value in enumerate(call.args)
                )
                calls[number] = replace(call, args=tuple(args))
        ends = [
            tuple(positions.get(value, value) for value in found)
            for found, positions in (
                (chain.inputs, _at_ends(setting, setting.wanted.inputs, setting.plan.inputs)),
                (chain.outputs, _at_ends(setting, setting.wanted.outputs, setting.plan.outputs)),
            )
        ]
        chains.append(replace(chain, instructions=tuple(calls), inputs=ends[0], outputs=ends[1]))
        base += len(calls)
    inputs, outputs = list(setting.plan.inputs), list(setting.plan.outputs)
    for indices, positions in ((inputs, setting.wanted.inputs), (outputs, setting.wanted.outputs)):
        for position, device in positions.items():
            indices[position] = setting.replicas.of[indices[position], device]
    return replace(setting.plan, chains=tuple(chains), inputs=tuple(inputs), outputs=tuple(outputs))


def _at_ends(setting: Setting, positions: Mapping[int, Device], indices: Sequence[int]) -> dict[int, int]:
    values = {indices[position]: device for position, device in positions.items()}
    return {value: setting.replicas.of[value, device] for value, device in values.items()}


def _by_item(bits: Mapping[tuple[int, Device], int]) -> Mapping[int, Sequence[tuple[Device, int]]]:
    found: dict[int, list[tuple[Device, int]]] = defaultdict(list)
    for (item, device), bit in bits.items():
        found[item].append((device, bit))
    return found
