"""Copies to the host, for instructions and copies to devices that read there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from etdev.devices import HOST, Device
from etdev.linker.devices.copies import Insertions, copied, is_dynamic, with_copies
from etdev.linker.devices.origins import Origins, find_origins
from etdev.linker.devices.setting import Setting, UnclearError
from etdev.linker.devices.transfers import Facts, Spot, find_spots
from etdev.linker.edit import with_insertions
from etdev.program import model as m
from etdev.program.analysis.effects import Effects, effects, tensors
from etdev.program.analysis.flow import FlowGraph, flow_graph
from etdev.program.devices import D2H_COPY


def copy_to_host(
    setting: Setting, plan: m.ExecutionPlan, moved: Mapping[int, int]
) -> tuple[m.ExecutionPlan, dict[int, int]]:
    """Insert copies to the host, for instructions and copies to devices that read there.

    ``plan`` is the method with its copies to devices. ``moved`` maps its original positions to those in ``plan``.
    Return the method, and the positions of the instructions of ``plan`` in it.
    """
    whole = replace(plan, values=setting.replicas.values())
    flow = flow_graph(whole)
    tracked = sorted({setting.items.of[value] for value, _ in setting.replicas.of} - setting.items.fixed.keys())
    facts = Facts(len(flow.instructions))
    bits = {item: facts.new() for item in tracked}
    devices = {moved[position]: device for position, device in setting.devices.items()}
    written: list[dict[int, Device]] = []
    for position, found in enumerate(_effects(setting, whole, moved, flow)):
        device = devices.get(position, HOST)
        for value in (*found.reads, *found.fills) if device == HOST else ():
            facts.needed[position] |= bits.get(_item(setting, value), 0)
        changed = {
            _item(setting, value)
            for value in (*found.writes, *found.updates, *found.fills)
            # A copy to a device leaves the content on the host unchanged.
            if device != HOST or value < len(setting.plan.values)
        } & bits.keys()
        for item in changed:
            (facts.made if device == HOST else facts.ended)[position] |= bits[item]
        written.append(dict.fromkeys(changed, device))
    elsewhere = {**setting.given, **setting.state}
    at_entry = {item: elsewhere.get(item, HOST) for item in tracked if item in setting.filled}
    facts.at_entry = sum(bit for item, bit in bits.items() if at_entry.get(item, HOST) == HOST)
    for item in _read_by_caller(setting, plan) & bits.keys():
        facts.needed[-1] |= bits[item]
    origins = find_origins(flow, written, at_entry)
    spots = find_spots(flow, facts.needs(), [sum(bits[item] for item in apart) for apart in origins.apart])
    return with_insertions(*with_copies(plan, *_from_devices(setting, spots, bits, origins, moved)))


def _from_devices(
    setting: Setting, spots: Mapping[Spot, int], bits: Mapping[int, int], origins: Origins, moved: Mapping[int, int]
) -> tuple[Insertions, Insertions]:
    """Return copies from the device of each item's last write."""
    positions = sorted(moved.values())
    before: Insertions = defaultdict(list)
    behind: Insertions = defaultdict(list)
    for spot, found_bits in spots.items():
        for item, bit in bits.items():
            if bit & found_bits:
                source = origins.at(spot, item)
                if source is None or source == HOST:
                    raise UnclearError(item)
                at = bisect_right(positions, spot.position) - 1 if spot.after else bisect_left(positions, spot.position)
                at_spot = Spot(at, spot.after)
                name = setting.names.write_at(at_spot, item)
                held = setting.names.standing_for(name, at_spot, item, setting.plan)
                (behind if spot.after else before)[spot.position] += copied(
                    setting.plan, D2H_COPY, setting.replicas.get(held, source), name
                )
    return before, behind


def _read_by_caller(setting: Setting, plan: m.ExecutionPlan) -> set[int]:
    """Return the items that must be on the host when the method ends: outputs, and state for the next call."""
    outputs = tensors(setting.plan, (value for value in plan.outputs if value < len(setting.plan.values)))
    kept = (value for item in setting.memory.storages if item.persistent for value in item.values)
    return {setting.items.of[value] for value in (*outputs, *kept)} - setting.state.keys()


def _effects(setting: Setting, plan: m.ExecutionPlan, moved: Mapping[int, int], flow: FlowGraph) -> Iterator[Effects]:
    inputs = {moved[position]: count for position, count in setting.inputs.items()}
    for position, call in enumerate(flow.instructions):
        found = effects(plan, call, inputs.get(position))
        if isinstance(call, m.KernelCall) and found == Effects():
            # It reads only sizes; those of a static tensor are the same everywhere.
            found = Effects(reads=tuple(value for value in tensors(plan, call.args) if is_dynamic(plan.values[value])))
        yield found


def _item(setting: Setting, value: int) -> int:
    return setting.items.of[setting.replicas.first.get(value, value)]
