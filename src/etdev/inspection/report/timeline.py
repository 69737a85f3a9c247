"""Timeline of a method: the device of each instruction, and the copies between devices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby

from etdev.devices import HOST, Device, DeviceNameError
from etdev.inspection.transfers import Transfer, transfers
from etdev.page.model import Texts, Timeline, Transfers
from etdev.program import model as m
from etdev.program.devices import delegate_device


def timeline(plan: m.ExecutionPlan, texts: Texts) -> Timeline | None:
    """Return the timeline of a method; None if the method uses only the host."""
    copies = tuple(transfers(plan))
    positions = {item.instruction for item in copies}
    # A copy between host and device uses both, so its device here is None.
    places = [None if at in positions else device_of(plan, call) for at, call in enumerate(plan.instructions)]
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
        transfers=_transfers(copies, texts),
    )


def device_of(plan: m.ExecutionPlan, call: m.Instruction) -> Device:
    """Return the device that runs an instruction: the host, but for delegates on other devices."""
    if isinstance(call, m.DelegateCall):
        with suppress(DeviceNameError):
            return delegate_device(plan.delegates[call.delegate_index])
    return HOST


def _transfers(found: Sequence[Transfer], texts: Texts) -> Transfers:
    return Transfers(
        instruction=tuple(item.instruction for item in found),
        to_device=tuple(item.to_device for item in found),
        device=tuple(texts.number(item.device) for item in found),
        size=tuple(item.nbytes for item in found),
        value=tuple(item.value for item in found),
    )
