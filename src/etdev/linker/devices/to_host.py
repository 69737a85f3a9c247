"""Copies from devices to the host, for host instructions and for copies to other devices."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from etdev.devices import HOST, Device
from etdev.linker.devices.copies import Insertions, copy_between, copy_instructions, is_dynamic
from etdev.linker.devices.origins import Origins, find_origins
from etdev.linker.devices.placement import AmbiguousSourceError, Placement
from etdev.linker.devices.transfers import NeedsBuilder, Spot, find_spots
from etdev.linker.edit import with_insertions
from etdev.program import model as m
from etdev.program.analysis.effects import Effects, effects, tensors
from etdev.program.analysis.flow import FlowGraph, flow_graph
from etdev.program.devices import D2H_COPY


def copy_to_host(
    placement: Placement, plan: m.ExecutionPlan, moved: Mapping[int, int]
) -> tuple[m.ExecutionPlan, dict[int, int]]:
    """Insert the copies from devices to the host.

    ``plan`` is the method, copies to devices included. ``moved`` maps positions in the original method to positions in
    ``plan``. Return the changed method, and a map from positions in ``plan`` to positions in the changed method.
    """
    whole = replace(plan, values=placement.replicas.values())
    flow = flow_graph(whole)
    tracked = sorted({placement.items.of[value] for value, _ in placement.replicas.of} - placement.items.fixed.keys())
    facts = NeedsBuilder(len(flow.instructions))
    bits = {item: facts.new() for item in tracked}
    devices = {moved[position]: device for position, device in placement.devices.items()}
    written: list[dict[int, Device]] = []
    for position, found in enumerate(_effects(placement, whole, moved, flow)):
        device = devices.get(position, HOST)
        for value in (*found.reads, *found.fills) if device == HOST else ():
            facts.needed[position] |= bits.get(_item(placement, value), 0)
        changed = {
            _item(placement, value)
            for value in (*found.writes, *found.updates, *found.fills)
            # A copy to a device leaves the content on the host unchanged.
            if device != HOST or value < len(placement.plan.values)
        } & bits.keys()
        for item in changed:
            (facts.made if device == HOST else facts.ended)[position] |= bits[item]
        written.append(dict.fromkeys(changed, device))
    elsewhere = {**placement.given, **placement.state}
    at_entry = {item: elsewhere.get(item, HOST) for item in tracked if item in placement.filled}
    facts.at_entry = sum(bit for item, bit in bits.items() if at_entry.get(item, HOST) == HOST)
    for item in _read_by_caller(placement, plan) & bits.keys():
        facts.needed[-1] |= bits[item]
    origins = find_origins(flow, written, at_entry)
    spots = find_spots(flow, facts.needs(), [sum(bits[item] for item in apart) for apart in origins.ambiguous])
    return with_insertions(*copy_instructions(plan, *_from_devices(placement, spots, bits, origins, moved)))


def _from_devices(
    placement: Placement, spots: Mapping[Spot, int], bits: Mapping[int, int], origins: Origins, moved: Mapping[int, int]
) -> tuple[Insertions, Insertions]:
    """Return the copies to insert before instructions, and the copies to insert after instructions.

    Each copy reads from the device that wrote the item last.
    """
    positions = sorted(moved.values())
    before: Insertions = defaultdict(list)
    after: Insertions = defaultdict(list)
    for spot, found_bits in spots.items():
        for item, bit in bits.items():
            if bit & found_bits:
                source = origins.at(spot, item)
                if source is None or source == HOST:
                    raise AmbiguousSourceError(item)
                at = bisect_right(positions, spot.position) - 1 if spot.after else bisect_left(positions, spot.position)
                at_spot = Spot(at, spot.after)
                name = placement.holders.write_at(at_spot, item)
                held = placement.holders.holder_like(name, at_spot, item, placement.plan)
                (after if spot.after else before)[spot.position] += copy_between(
                    placement.plan, D2H_COPY, placement.replicas.get(held, source), name
                )
    return before, after


def _read_by_caller(placement: Placement, plan: m.ExecutionPlan) -> set[int]:
    """Return the items that must be on the host when the method ends: outputs, and state for the next call."""
    outputs = tensors(placement.plan, (value for value in plan.outputs if value < len(placement.plan.values)))
    kept = (value for item in placement.memory.storages if item.persistent for value in item.values)
    return {placement.items.of[value] for value in (*outputs, *kept)} - placement.state.keys()


def _effects(
    placement: Placement, plan: m.ExecutionPlan, moved: Mapping[int, int], flow: FlowGraph
) -> Iterator[Effects]:
    inputs = {moved[position]: count for position, count in placement.inputs.items()}
    for position, call in enumerate(flow.instructions):
        found = effects(plan, call, inputs.get(position))
        if isinstance(call, m.KernelCall) and found == Effects():
            # The kernel reads only sizes. Those of a static tensor are the same on host and device.
            found = Effects(reads=tuple(value for value in tensors(plan, call.args) if is_dynamic(plan.values[value])))
        yield found


def _item(placement: Placement, value: int) -> int:
    return placement.items.of[placement.replicas.first.get(value, value)]
