"""Names of an item: the values that hold its content at each point of a method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from etdev.linker.devices.items import Items
from etdev.linker.devices.transfers import Spot
from etdev.program import model as m
from etdev.program.analysis.effects import Effects
from etdev.program.analysis.storage import MethodMemory

_State = dict[int, frozenset[int]]
"""Item → values that hold its last written content. A missing item has not been written."""


class Names:
    """Values that hold the content of their item, at each point of a method.

    A value that is written holds the content until another value of the item is written, or until it is freed. A value
    that is never written is an alias, and always holds the content. A value that a move sets holds it from the move on.
    """

    def __init__(self, inputs: Iterable[int], filled: Collection[int], memory: MethodMemory, items: Items) -> None:
        """Follow a method.

        ``inputs`` are the tensors that the caller writes. ``filled`` are other tensors that hold content before the
        method begins: constants, and state that is kept under its own name.
        """
        self._items, self._reaching = items, memory.reaching
        self._written = {*inputs, *(value for found in self._reaching.effects for value in _writes(found))}
        self._set = memory.reaching.references
        kept = {items.of[value] for storage in memory.storages if storage.persistent for value in storage.values}
        kept |= {items.of[value] for value in filled}
        found = {item: frozenset({*self._aliases(item), *filled}.intersection(items.names[item])) for item in kept}
        self._entry = {item: names for item, names in found.items() if names}
        self._entry |= {items.of[value]: frozenset({value}) for value in inputs}
        self._before: dict[int, _State] = {}
        self._behind: dict[int, _State] = {-1: self._entry}
        self._follow()

    def read_at(self, spot: Spot, item: int) -> int | None:
        """Return a value under which an item can be read; None if each path has a different one."""
        names, aliases = self._items.names[item], self._aliases(item)
        known = (self._behind if spot.after else self._before).get(spot.position, {}).get(item)
        if known is None:
            return aliases[0] if aliases else names[0]
        return next((value for value in (*filter(known.__contains__, names), *aliases)), None)

    def is_one_of_several(self, spot: Spot, item: int) -> bool:
        """Return whether an item was written under a different name on each path."""
        known = (self._behind if spot.after else self._before).get(spot.position, {}).get(item)
        return known is not None and not known

    def is_alias(self, value: int) -> bool:
        """Return whether a value always holds the content of its bytes."""
        return value not in self._written and value not in self._set

    def standing_for(self, value: int, spot: Spot, item: int, plan: m.ExecutionPlan) -> int:
        """Return a tensor of the same form that holds the item: ``value`` itself if it does, or if none else does."""
        known = (self._behind if spot.after else self._before).get(spot.position, {}).get(item)
        if known is None or value in known:
            return value
        form = _form(plan.values[value])
        like = (name for name in self._items.names[item] if name in known and _form(plan.values[name]) == form)
        return next(like, value)

    def write_at(self, spot: Spot, item: int) -> int:
        """Return a value under which an item can be written: one that represents its own bytes."""
        names = [value for value in self._items.names[item] if value not in self._set] or self._items.names[item]
        known = (self._behind if spot.after else self._before).get(spot.position, {}).get(item, frozenset())
        return next((value for value in names if value in known), names[0])

    def _aliases(self, item: int) -> list[int]:
        return [value for value in self._items.names[item] if self.is_alias(value)]

    def _follow(self) -> None:
        flow = self._reaching.flow
        end = len(flow.instructions)
        heads: dict[int, _State | None] = defaultdict(lambda: None)
        order = flow.order()
        heads[flow.blocks[order[0]].start if order else end] = self._entry
        changed = True
        while changed:
            changed = False
            for number in order:
                block = flow.blocks[number]
                state = heads[block.start]
                if state is None:
                    continue
                for position in range(block.start, block.end):
                    self._before[position] = state
                    state = self._after(state, flow.instructions[position], self._reaching.effects[position])
                    self._behind[position] = state
                for successor in block.successors:
                    head = end if successor == flow.exit else flow.blocks[successor].start
                    joined = _join(heads[head], state)
                    if joined != heads[head]:
                        heads[head], changed = joined, True
        self._before[end] = heads[end] or {}

    def _after(self, state: _State, call: m.Instruction, found: Effects) -> _State:
        of, names = self._items.of, self._items.names
        if isinstance(call, m.FreeCall):
            item = of.get(call.value_index)
            return state if item not in state else {**state, item: state[item] - {call.value_index}}
        # Items with a single name need no tracking.
        new = {of[value]: frozenset({value}) for value in _writes(found) if len(names[of[value]]) > 1}
        if found.move and found.move[0] in of and found.move[1] in of:
            origin, to = found.move
            known = state.get(of[origin])
            if of[origin] == of[to] and known is not None:
                new[of[to]] = known | {to} if origin in known else known - {to}
            elif of[origin] == of[to]:
                new[of[to]] = frozenset({origin, to})
        return {**state, **new} if new else state


def _form(value: m.Value) -> object:
    assert isinstance(value, m.Tensor)
    return value.scalar_type, value.sizes, value.dim_order


def _writes(found: Effects) -> Iterable[int]:
    return (*found.writes, *found.updates, *found.fills)


def _join(one: _State | None, other: _State) -> _State:
    if one is None:
        return other
    found = dict(one)
    for item, names in other.items():
        found[item] = found[item] & names if item in found else names
    return found
