"""Placement of all methods of a program: move tensors to the devices of the delegates that use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from etdev.devices import Device
from etdev.linker.devices.ends import left_on_devices
from etdev.linker.devices.merges import join_merged
from etdev.linker.devices.place import place_tensors
from etdev.linker.devices.resident import MethodOnDevices, find_homes, write_in_state
from etdev.linker.devices.setting import Wanted
from etdev.linker.lift import lift
from etdev.linker.options import CallerOwned, LinkOptions
from etdev.linker.state import State
from etdev.linker.work import Work
from etdev.program.delegates import delegate_devices


def place_on_devices(
    works: Sequence[Work], state: Sequence[State], options: LinkOptions
) -> tuple[list[Work], Sequence[State]]:
    """Place the tensors of delegates on devices; return the methods and their state after that.

    Methods on the host alone, without such delegates, stay unchanged. Raises :class:`~etdev.errors.LinkError` for a
    delegate whose device is unknown, and for an input or output that cannot stay on a device.
    """
    works = [_prepared(work, options) for work in works]
    devices = [delegate_devices(work.plan) for work in works]
    homes = find_homes(
        [MethodOnDevices(work.plan, work.memory, found) for work, found in zip(works, devices, strict=True)], state
    )
    placed, renamed = [], []
    for work, found, home in zip(works, devices, homes, strict=True):
        there, names = _placed(work, found, _wanted(work, found, home, options))
        placed.append(there)
        renamed.append(names)
    return placed, [_renamed(item, renamed) for item in state]


def _prepared(work: Work, options: LinkOptions) -> Work:
    """Prepare a method so that placement needs fewer copies."""
    devices = delegate_devices(work.plan)
    if not devices:
        return work
    work = work.with_plan(join_merged(work.plan, work.memory, devices))
    return work.after(*write_in_state(work.plan, work.memory, devices)) if "write_back" in options.elide else work


def _wanted(work: Work, devices: Mapping[int, Device], homes: Mapping[int, Device], options: LinkOptions) -> Wanted:
    owned = options.caller.get(work.plan.name, CallerOwned())
    inputs, outputs = left_on_devices(work.plan, work.memory, devices, owned, work.ends)
    return Wanted(inputs, outputs, homes)


def _placed(work: Work, devices: Mapping[int, Device], wanted: Wanted) -> tuple[Work, Mapping[int, int]]:
    """Return the method with placed tensors, and the new values of its state on devices."""
    if not devices and not wanted.inputs and not wanted.outputs and not wanted.state:
        return work, {}
    found = place_tensors(work.plan, work.memory, work.inputs, devices, wanted)
    kept = work.persistent - found.state.keys() | set(found.state.values())
    work = replace(work, persistent=frozenset(kept), neighbors=found.replicas)
    work = work.with_plan(found.plan, found.moved)
    # Merged branches share bytes only to be one item during placement, so lift the method again.
    return work.with_plan(lift(work.plan, work.memory)), found.state


def _renamed(state: State, names: Sequence[Mapping[int, int]]) -> State:
    """Return the state with the new values of its tensors."""
    members = tuple((index, names[index].get(value, value), inside) for index, value, inside in state.members)
    return replace(state, members=members)
