"""Analysis of which device wrote each item most recently, at each point of a method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etdev.devices import HOST, Device
from etdev.linker.devices.transfers import Spot
from etdev.program.analysis.flow import FlowGraph

_State = dict[int, frozenset[Device]]
"""Maps each item to the devices that may have written it last, including the host. Omits items without content."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Devices that may have written each item most recently, at each point of a method."""

    _before: Mapping[int, _State]
    _after: Mapping[int, _State]
    ambiguous: Sequence[frozenset[int]]
    """For each position, the items whose most recent writer may be one of several devices.

    The host does not count as a device. The last entry is for the end of the method.
    """

    def at(self, spot: Spot, item: int) -> Device | None:
        """Return the device that wrote an item most recently.

        Return None if that device depends on the path, or if the item has no content.
        """
        state = self._after.get(spot.position, {}) if spot.after else self._before.get(spot.position, {})
        found = state.get(item, frozenset())
        return next(iter(found)) if len(found) == 1 else None


def find_origins(flow: FlowGraph, written: Sequence[Mapping[int, Device]], at_entry: Mapping[int, Device]) -> Origins:
    """Follow the control flow of a method to find which device wrote each item most recently.

    ``written`` has one map for each instruction. The keys are the items that the instruction writes. Each value is the
    device that runs the instruction. ``at_entry`` maps the items with content at the start of the method to devices.
    """
    end = len(flow.instructions)
    entry: _State = {item: frozenset({device}) for item, device in at_entry.items()}
    heads: dict[int, _State] = defaultdict(dict)
    first = flow.order()[:1]
    heads[flow.blocks[first[0]].start if first else end] = entry
    before: dict[int, _State] = {}
    after: dict[int, _State] = {-1: entry}
    changed = True
    while changed:
        changed = False
        for number in flow.order():
            block = flow.blocks[number]
            state = heads[block.start]
            for position in range(block.start, block.end):
                before[position] = state
                if written[position]:
                    state = {**state, **{item: frozenset({device}) for item, device in written[position].items()}}
                after[position] = state
            for successor in block.successors:
                head = end if successor == flow.exit else flow.blocks[successor].start
                joined = dict(heads[head])
                for item, places in state.items():
                    joined[item] = joined.get(item, frozenset()) | places
                if joined != heads[head]:
                    heads[head] = joined
                    changed = True
    before[end] = heads[end]
    ambiguous = [
        frozenset(item for item, places in before.get(position, {}).items() if len(places - {HOST}) > 1)
        for position in range(end + 1)
    ]
    return Origins(before, after, ambiguous)
