"""Which values still matter as references: looked at somewhere, on some path, before they are set anew.

What a move or a view has set a value to is of no interest once nobody looks at the value before the next one sets it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from etdev.program import model as m
from etdev.program.effects import Effects, tensors
from etdev.program.flow import FlowGraph
from etdev.program.persistent import Node, room, united, value_at, with_members


@dataclass(frozen=True, slots=True)
class References:
    """Values that are looked at before they are set again."""

    _after: tuple[Node, ...]
    """By block, the set of them at its end."""
    _at_start: Node
    """The set of them where a call begins."""
    _size: int
    """Of these sets."""

    def at_start(self, value: int) -> bool:
        """Return whether a call looks at a value before it sets it; the caller looks at the inputs."""
        return bool(value_at(self._at_start, self._size, value))

    def after(self, block: int, value: int) -> bool:
        """Return whether a value is looked at behind a block before it is set again."""
        return bool(value_at(self._after[block], self._size, value))


def references(plan: m.ExecutionPlan, flow: FlowGraph, effects: Sequence[Effects]) -> References:
    """Follow a method backwards. Its end leads to its beginning, for references are kept from call to call.

    Only values that moves and views have to do with matter.
    """
    pairs = [pair for found in effects for pair in (found.move, found.view) if pair]
    referring = {value for pair in pairs for value in pair}
    moved = {found.move[1] for found in effects if found.move}
    summaries = [_summary(effects[block.start : block.end], moved, referring) for block in flow.blocks]
    size = room(len(plan.values))
    before: list[Node] = [False] * len(flow.blocks)
    after: list[Node] = [False] * len(flow.blocks)
    inputs, outputs = (referring.intersection(tensors(plan, ends)) for ends in (plan.inputs, plan.outputs))
    order, heads = flow.order(), flow.heads()
    at_start = with_members(False, size, inputs, True)
    changed = True
    while changed:
        changed = False
        at_end = with_members(at_start, size, outputs, True)
        for number in reversed(order):
            out: Node = False
            for successor in flow.blocks[number].successors:
                out = united(out, at_end if successor == flow.exit else before[successor])
            looks, sets = summaries[number]
            into = with_members(with_members(out, size, sets, False), size, looks, True)
            after[number] = out
            if into != before[number]:
                before[number] = into
                changed = changed or number in heads
        known, at_start = at_start, united(at_start, before[order[0]]) if order else at_end
        changed = changed or at_start != known
    return References(tuple(after), at_start, size)


def _summary(effects: Iterable[Effects], moved: Collection[int], referring: set[int]) -> tuple[set[int], set[int]]:
    """Values that some instructions look at before they set them, and those that they set."""
    looked: set[int] = set()
    was_set: set[int] = set()
    for found in effects:
        used = [*found.reads, *found.writes, *found.updates, *found.fills]
        if found.move:
            used.append(found.move[0])
        if found.view:
            of, out = found.view
            # The data of a tensor is set: of that one that ``out`` is, if a move has made it another.
            used += [of, out] if out in moved else [of]
        looked |= referring.intersection(used) - was_set
        if found.move:
            was_set.add(found.move[1])
        if found.view and found.view[1] not in moved:
            was_set.add(found.view[1])
    return looked, was_set
