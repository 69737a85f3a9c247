"""Values that hold the content of an item, at each point of a method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from etdev.linker.devices.items import Items
from etdev.linker.devices.transfers import Spot
from etdev.program import model as m
from etdev.program.analysis.effects import Effects
from etdev.program.analysis.storage import MethodMemory

_State = dict[int, frozenset[int]]
"""Maps each item to the values that hold its most recent content. Items without content are not in the map."""


class Holders:
    """Values that hold the content of each item, at each point of a method.

    An instruction writes content to one value of an item. That value holds the content until it is freed, or until
    another value of the item is written. A value that is never written is an alias, and always holds the content. When
    a move sets a value, that value holds the content afterwards.
    """

    def __init__(self, inputs: Iterable[int], filled: Collection[int], memory: MethodMemory, items: Items) -> None:
        """Find the values that hold content, by following the control flow of a method.

        ``inputs`` are the tensors that the caller writes. ``filled`` are other tensors that hold content before the
        method begins: constants, and state that has a name in the file.
        """
        self._items, self._reaching = items, memory.reaching
        self._written = {*inputs, *(value for found in self._reaching.effects for value in _writes(found))}
        self._set = memory.reaching.references
        kept = {items.of[value] for storage in memory.storages if storage.persistent for value in storage.values}
        kept |= {items.of[value] for value in filled}
        found = {item: frozenset({*self._aliases(item), *filled}.intersection(items.values[item])) for item in kept}
        self._entry = {item: values for item, values in found.items() if values}
        self._entry |= {items.of[value]: frozenset({value}) for value in inputs}
        self._before: dict[int, _State] = {}
        self._after: dict[int, _State] = {-1: self._entry}
        self._follow()

    def read_at(self, spot: Spot, item: int) -> int | None:
        """Return a value that holds the item at ``spot`` on every path, or None if there is no such value.

        If the item has no content at ``spot``, return any value of the item.
        """
        values, aliases = self._items.values[item], self._aliases(item)
        known = self._known_at(spot, item)
        if known is None:
            return aliases[0] if aliases else values[0]
        return next((value for value in (*filter(known.__contains__, values), *aliases)), None)

    def differs_by_path(self, spot: Spot, item: int) -> bool:
        """Return True if no single value holds the item at ``spot`` on every path."""
        known = self._known_at(spot, item)
        return known is not None and not known

    def is_alias(self, value: int) -> bool:
        """Return True if no instruction writes or redirects a value, and the caller does not write the value either.

        Such a value always holds the most recent content of its bytes.
        """
        return value not in self._written and value not in self._set

    def holder_like(self, value: int, spot: Spot, item: int, plan: m.ExecutionPlan) -> int:
        """Return a value that holds the item at ``spot`` and has the sizes and element type of ``value``.

        Return ``value`` itself if ``value`` holds the item, or if no value of the item fits.
        """
        known = self._known_at(spot, item)
        if known is None or value in known:
            return value
        form = _form(plan.values[value])
        like = (name for name in self._items.values[item] if name in known and _form(plan.values[name]) == form)
        return next(like, value)

    def write_at(self, spot: Spot, item: int) -> int:
        """Return the value to which new content of the item can be written at ``spot``.

        Prefer a value that no move or view sets, because such a value has memory of its own.
        """
        values = [value for value in self._items.values[item] if value not in self._set] or self._items.values[item]
        known = self._known_at(spot, item) or frozenset()
        return next((value for value in values if value in known), values[0])

    def _known_at(self, spot: Spot, item: int) -> frozenset[int] | None:
        """Return the values that hold the item at ``spot`` on every path, or None if the item has no content yet."""
        return (self._after if spot.after else self._before).get(spot.position, {}).get(item)

    def _aliases(self, item: int) -> list[int]:
        return [value for value in self._items.values[item] if self.is_alias(value)]

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
                    state = self._step(state, flow.instructions[position], self._reaching.effects[position])
                    self._after[position] = state
                for successor in block.successors:
                    head = end if successor == flow.exit else flow.blocks[successor].start
                    joined = _join(heads[head], state)
                    if joined != heads[head]:
                        heads[head], changed = joined, True
        self._before[end] = heads[end] or {}

    def _step(self, state: _State, call: m.Instruction, found: Effects) -> _State:
        of, values = self._items.of, self._items.values
        if isinstance(call, m.FreeCall):
            item = of.get(call.value_index)
            return state if item not in state else {**state, item: state[item] - {call.value_index}}
        # An item with a single value needs no tracking: only that value can hold the content.
        new = {of[value]: frozenset({value}) for value in _writes(found) if len(values[of[value]]) > 1}
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
    for item, values in other.items():
        found[item] = found[item] & values if item in found else values
    return found
