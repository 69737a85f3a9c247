"""Liveness of references: a reference is live if some path reads the value before setting its reference again.

A move or a view sets the reference of a value. The reference is dead if every path sets the reference again before
reading the value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from etdev.program import model as m
from etdev.program.analysis.effects import Effects, tensors
from etdev.program.analysis.flow import FlowGraph
from etdev.program.analysis.persistent import Node, differences, room, united, value_at, with_members


@dataclass(frozen=True, slots=True)
class References:
    """Live references at the borders of blocks: the program reads them before the next move or view sets them."""

    _after: tuple[Node, ...]
    """For each block, the set of values with a live reference at the end of the block."""
    _before: tuple[tuple[Node, ...], ...]
    """For each block, one set per edge into the block: the values with a live reference on the edge."""
    _at_start: Node
    """Set of the values with a live reference at the start of a call."""
    _size: int
    """Size of the persistent sets."""

    def at_start(self, value: int) -> bool:
        """Return True if a call may read a value's reference before setting the reference. Inputs count as read."""
        return bool(value_at(self._at_start, self._size, value))

    def dropped(self, block: int) -> set[int]:
        """Return the values whose reference is live on an edge into a block but dead at the block's end."""
        live = self._after[block]
        return {
            value
            for before in self._before[block]
            for value in differences(before, live, self._size)
            if not value_at(live, self._size, value)
        }

    def after(self, block: int, value: int) -> bool:
        """Return True if, after a block, some path reads a value's reference before setting the reference again."""
        return bool(value_at(self._after[block], self._size, value))


def references(plan: m.ExecutionPlan, flow: FlowGraph, effects: Sequence[Effects]) -> References:
    """Find the live references of a method by a backward analysis.

    At the method's start, the analysis continues at the method's end, because references persist from call to call.
    The result covers only values that occur in moves and views.
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
    ways: list[list[Node]] = [[] for _ in flow.blocks]
    for number in order:
        for successor in flow.blocks[number].successors:
            if successor != flow.exit:
                ways[successor].append(after[number])
    if order:
        ways[order[0]].append(at_start)
    return References(tuple(after), tuple(map(tuple, ways)), at_start, size)


def _summary(effects: Iterable[Effects], moved: Collection[int], referring: set[int]) -> tuple[set[int], set[int]]:
    """Return two sets: the values that instructions read before setting them, and all values that instructions set."""
    looked: set[int] = set()
    was_set: set[int] = set()
    for found in effects:
        used = [*found.reads, *found.writes, *found.updates, *found.fills]
        if found.move:
            used.append(found.move[0])
        if found.view:
            of, out = found.view
            # A view sets the data of the tensor that ``out`` is, which may be another one after a move.
            used += [of, out] if out in moved else [of]
        looked |= referring.intersection(used) - was_set
        if found.move:
            was_set.add(found.move[1])
        if found.view and found.view[1] not in moved:
            was_set.add(found.view[1])
    return looked, was_set
