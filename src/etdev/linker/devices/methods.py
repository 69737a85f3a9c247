"""Placement of tensors on devices, in all methods of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from etdev.linker.devices.ends import wanted_placement
from etdev.linker.devices.place import place_tensors
from etdev.linker.devices.resident import find_resident_state
from etdev.linker.options import LinkOptions
from etdev.linker.state import State
from etdev.linker.work import PassResult, Work
from etdev.program.delegates import delegate_devices


def place_on_devices(work: Work, options: LinkOptions) -> PassResult:
    """Place the arguments of delegates on the delegates' devices, in all methods.

    A method without delegates on devices stays unchanged. Raises :class:`~etdev.errors.LinkError` for a delegate whose
    device is unknown, and for an input or output that cannot stay on a device.
    """
    devices = [delegate_devices(method.plan) for method in work.methods]
    homes = find_resident_state(work.methods, devices, work.state)
    placed = [
        place_tensors(method, found, wanted_placement(method, found, home, options))
        for method, found, home in zip(work.methods, devices, homes, strict=True)
    ]
    renamed = [names for _, names in placed]
    work = replace(work, state=tuple(_renamed(item, renamed) for item in work.state))
    return PassResult.of(work, [changed for changed, _ in placed])


def _renamed(state: State, names: Sequence[Mapping[int, int]]) -> State:
    """Return the state with new value indices. ``names`` has one map for each method, from old to new indices."""
    members = tuple((index, names[index].get(value, value), inside) for index, value, inside in state.members)
    return replace(state, members=members)
