"""Copies from the host to devices.

A delegate needs its inputs on its device. A write to an item on the host or on another device makes the replica out of
date.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from etdev.devices import HOST, Device
from etdev.errors import LinkError
from etdev.linker.devices.copies import Insertions, copy_between, copy_instructions
from etdev.linker.devices.placement import AmbiguousSourceError, Placement
from etdev.linker.devices.transfers import NeedsBuilder, Spot, find_spots
from etdev.linker.edit import with_insertions
from etdev.program import model as m
from etdev.program.analysis.effects import Effects
from etdev.program.devices import D2H_COPY, H2D_COPY


def copy_to_devices(placement: Placement) -> tuple[m.ExecutionPlan, dict[int, int]]:
    """Insert the copies from the host to devices, and replace arguments of delegate calls by their replicas.

    Return the changed method, and a map from original to new positions of instructions.
    """
    facts = NeedsBuilder(len(placement.memory.reaching.effects))
    bits = {pair: facts.new() for pair in sorted(_pairs(placement))}
    _enter_instructions(placement, facts, bits)
    _enter_ends(placement, facts, bits)
    before: Insertions = defaultdict(list)
    after = _fixed_copies(placement)
    for spot, found_bits in find_spots(placement.memory.reaching.flow, facts.needs()).items():
        where = after if spot.after else before
        for (item, device), bit in bits.items():
            if bit & found_bits:
                name = placement.holders.read_at(spot, item)
                if name is None:
                    raise AmbiguousSourceError(item)
                where[spot.position] += copy_between(
                    placement.plan, H2D_COPY, name, placement.replicas.get(name, device)
                )
    return with_insertions(*copy_instructions(_with_arguments(placement), before, after))


def _enter_instructions(placement: Placement, facts: NeedsBuilder, bits: Mapping[tuple[int, Device], int]) -> None:
    """Record, for each instruction, the items needed on its device, and the replicas that its writes affect."""
    on = _by_item(bits)
    for position, found in enumerate(placement.memory.reaching.effects):
        device = placement.devices.get(position, HOST)
        for value in found.reads:
            facts.needed[position] |= bits.get((placement.items.of[value], device), 0)
        for value in (*found.writes, *found.updates, *found.fills, *_referring(placement, found)):
            for item in placement.items.changing_with(placement.items.of[value]):
                for other, bit in on[item]:
                    facts.ended[position] |= bit
                    if other == device and item == placement.items.of[value]:
                        facts.made[position] |= bit


def _referring(placement: Placement, found: Effects) -> Iterable[int]:
    """Return the value that a move or a view redirects, if that value's item is in ``Items.fixed``."""
    to = (found.move or found.view or ())[1:]
    return (value for value in to if placement.items.of.get(value) in placement.items.fixed)


def _pairs(placement: Placement) -> set[tuple[int, Device]]:
    """Return all pairs ``(item, device)`` for which the item is accessed on the device or stays there."""
    found = {(placement.items.of[value], device) for value, device in placement.wanted.state.items()}
    for position, device in placement.devices.items():
        here = placement.memory.reaching.effects[position]
        found |= {(placement.items.of[value], device) for value in (*here.reads, *here.writes, *here.updates)}
    for positions, indices in placement.ends():
        found |= {(placement.items.of[indices[position]], device) for position, device in positions.items()}
    return found


def _enter_ends(placement: Placement, facts: NeedsBuilder, bits: Mapping[tuple[int, Device], int]) -> None:
    """Record in ``facts`` which items a device holds when the method begins, and which it must hold at the end.

    An item is a group of tensors with the same content. ``bits`` numbers the pairs of an item and a device.
    """
    for (item, device), bit in bits.items():
        resident = placement.state.get(item) == device
        undefined = item not in placement.filled and item not in placement.items.fixed
        if resident or placement.given.get(item) == device or undefined:
            facts.at_entry |= bit
        if resident:
            facts.needed[-1] |= bit
    for positions, indices in placement.ends():  # The caller sees what the method writes to an input.
        for position, device in positions.items():
            facts.needed[-1] |= bits[placement.items.of[indices[position]], device]


def _fixed_copies(placement: Placement) -> Insertions:
    """Return copies to the host, to insert after calls that write an item whose content is always on the host."""
    after: Insertions = defaultdict(list)
    for position, device in placement.devices.items():
        found = placement.memory.reaching.effects[position]
        for value in dict.fromkeys((*found.writes, *found.updates)):
            if placement.items.of[value] in placement.items.fixed:
                after[position] += copy_between(placement.plan, D2H_COPY, placement.replicas.get(value, device), value)
    return after


def _argument(placement: Placement, position: int, number: int, value: int, device: Device) -> int:
    """Return the value that replaces the argument ``value`` of a delegate call on ``device``.

    ``number`` is the position of the argument. Raises :class:`~etdev.errors.LinkError` for a list of tensors.
    """
    found = placement.plan.values[value]
    if isinstance(found, m.TensorList | m.OptionalTensorList):
        raise LinkError(
            f"a delegate on {device} has a list of tensors as an argument: value {value}",
            where=f"method {placement.plan.name!r}, instruction {position}",
            hint="lower the model again so that each tensor is an argument of its own",
        )
    if not isinstance(found, m.Tensor):
        return value
    if number < placement.inputs[position]:
        at, item = Spot(position, after=False), placement.items.of[value]
        if placement.holders.differs_by_path(at, item):
            # State that stays on the device is never copied to it. If no delegate writes this value, its replica is an
            # alias.
            stays = placement.state.get(item) == device and placement.holders.is_alias(value)
            return placement.replicas.get(value, device) if stays else placement.replicas.alias(value, device)
        value = placement.holders.holder_like(value, at, item, placement.plan)
    return placement.replicas.get(value, device)


def _with_arguments(placement: Placement) -> m.ExecutionPlan:
    """Replace arguments of delegate calls, and inputs and outputs on devices, by their replicas. Return the method."""
    chains, base = [], 0
    for chain in placement.plan.chains:
        calls = list(chain.instructions)
        for number, call in enumerate(calls):
            device = placement.devices.get(base + number)
            if isinstance(call, m.DelegateCall) and device is not None:
                args = (
                    _argument(placement, base + number, index, value, device) for index, value in enumerate(call.args)
                )
                calls[number] = replace(call, args=tuple(args))
        ends = [
            tuple(positions.get(value, value) for value in found)
            for found, positions in (
                (chain.inputs, _at_ends(placement, placement.wanted.inputs, placement.plan.inputs)),
                (chain.outputs, _at_ends(placement, placement.wanted.outputs, placement.plan.outputs)),
            )
        ]
        chains.append(replace(chain, instructions=tuple(calls), inputs=ends[0], outputs=ends[1]))
        base += len(calls)
    inputs, outputs = list(placement.plan.inputs), list(placement.plan.outputs)
    for indices, positions in ((inputs, placement.wanted.inputs), (outputs, placement.wanted.outputs)):
        for position, device in positions.items():
            indices[position] = placement.replicas.of[indices[position], device]
    return replace(placement.plan, chains=tuple(chains), inputs=tuple(inputs), outputs=tuple(outputs))


def _at_ends(placement: Placement, positions: Mapping[int, Device], indices: Sequence[int]) -> dict[int, int]:
    values = {indices[position]: device for position, device in positions.items()}
    return {value: placement.replicas.of[value, device] for value, device in values.items()}


def _by_item(bits: Mapping[tuple[int, Device], int]) -> Mapping[int, Sequence[tuple[Device, int]]]:
    found: dict[int, list[tuple[Device, int]]] = defaultdict(list)
    for (item, device), bit in bits.items():
        found[item].append((device, bit))
    return found
