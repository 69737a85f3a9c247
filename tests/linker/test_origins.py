"""Devices that wrote an item last are those that some path leads from, with any control flow (B5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etdev.devices import HOST, Device, DeviceType
from etdev.linker.devices.origins import find_origins
from etdev.linker.devices.transfers import Spot
from etdev.program.analysis.flow import FlowGraph
from linker.flows import edges, flows

PLACES = (HOST, Device(DeviceType.CUDA), Device(DeviceType.CUDA, 1))


def places_on_paths(flow: FlowGraph, written: dict[int, Device], entry: Device) -> dict[int, set[Device]]:
    """Return the devices that may have written the item before each position, found by walking all paths."""
    ways = edges(flow)
    seen: set[tuple[int, Device]] = set()
    rest = [(-1, entry)]
    while rest:
        position, place = rest.pop()
        behind = written.get(position, place)
        for before, after in ways:
            if before == position and (after, behind) not in seen:
                seen.add((after, behind))
                rest.append((after, behind))
    found: dict[int, set[Device]] = {}
    for position, place in seen:
        found.setdefault(position, set()).add(place)
    return found


@given(flows(), st.dictionaries(st.integers(0, 8), st.sampled_from(PLACES)), st.sampled_from(PLACES))
def test_origins_are_those_of_all_paths(flow: FlowGraph, written: dict[int, Device], entry: Device) -> None:
    end = len(flow.instructions)
    writes = [{0: written[position]} if position in written else {} for position in range(end)]
    origins = find_origins(flow, writes, {0: entry})
    for position, places in places_on_paths(flow, written, entry).items():
        assert origins.at(Spot(position, after=False), 0) == (next(iter(places)) if len(places) == 1 else None)
        assert (0 in origins.ambiguous[position]) == (len(places - {HOST}) > 1)
