"""Timeline of a method: the device of each instruction, and the copies between devices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from etdev.devices import HOST, Device, DeviceNameError
from etdev.page.model import Texts, Timeline, Transfers
from etdev.program import model as m
from etdev.program.devices import D2H_COPY, H2D_COPY, delegate_device


def timeline(plan: m.ExecutionPlan, calls: Sequence[m.Instruction], texts: Texts) -> Timeline | None:
    """Return the timeline of a method; None if nothing of it is on a device."""
    places = [_place(plan, call) for call in calls]
    devices = {place for place in places if place is not None and not place.is_host}
    devices |= {tensor.device for _, tensor in plan.tensors() if not tensor.device.is_host}
    if not devices:
        return None
    ordered = (HOST, *sorted(devices))
    lanes, starts, ends = [], [], []
    position = 0
    for place, group in groupby(places):
        length = len(list(group))
        if place is not None:
            lanes.append(ordered.index(place))
            starts.append(position)
            ends.append(position + length)
        position += length
    return Timeline(
        devices=tuple(map(str, ordered)),
        lane=tuple(lanes),
        start=tuple(starts),
        end=tuple(ends),
        transfers=_transfers(plan, calls, texts),
    )


def _place(plan: m.ExecutionPlan, call: m.Instruction) -> Device | None:
    """Return the device of an instruction; None for a copy between host and device, which uses both."""
    match call:
        case m.KernelCall() if _is_transfer(plan, call):
            return None
        case m.DelegateCall():
            try:
                return delegate_device(plan.delegates[call.delegate_index])
            except DeviceNameError:
                return HOST
        case _:
            return HOST


def _is_transfer(plan: m.ExecutionPlan, call: m.KernelCall) -> bool:
    return plan.operators[call.op_index].name in (H2D_COPY, D2H_COPY) and len(call.args) > 1


def _transfers(plan: m.ExecutionPlan, calls: Sequence[m.Instruction], texts: Texts) -> Transfers:
    rows = []
    for position, call in enumerate(calls):
        if not isinstance(call, m.KernelCall) or not _is_transfer(plan, call):
            continue
        source, out = plan.values[call.args[0]], plan.values[call.args[-1]]
        if isinstance(source, m.Tensor) and isinstance(out, m.Tensor):
            there = plan.operators[call.op_index].name == H2D_COPY
            device = str((out if there else source).device)
            rows.append((position, there, texts.number(device), out.nbytes, call.args[-1]))
    return Transfers(
        instruction=tuple(row[0] for row in rows),
        to_device=tuple(row[1] for row in rows),
        device=tuple(row[2] for row in rows),
        size=tuple(row[3] for row in rows),
        value=tuple(row[4] for row in rows),
    )
