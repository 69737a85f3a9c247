"""Which values still matter as references: looked at somewhere, on some path, before they are set anew.

What a move or a view has set a value to is of no interest once nobody looks at the value before the next one sets it.
Values are bits of integers here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from etdev.program import model as m
from etdev.program.effects import Effects, tensors
from etdev.program.flow import FlowGraph


@dataclass(frozen=True, slots=True)
class References:
    """Values that are looked at before they are set again."""

    after: tuple[int, ...]
    """By block, at its end."""


def references(plan: m.ExecutionPlan, flow: FlowGraph, effects: Sequence[Effects]) -> References:
    """Follow a method backwards. Its end leads to its beginning, for references are kept from call to call."""
    moved = {found.move[1] for found in effects if found.move}
    summaries = [_summary(effects[block.start : block.end], moved) for block in flow.blocks]
    before = [0] * len(flow.blocks)
    after = [0] * len(flow.blocks)
    outside = _bits(tensors(plan, (*plan.inputs, *plan.outputs)))
    order = flow.order()
    changed = True
    while changed:
        changed = False
        at_end = outside | (before[order[0]] if order else 0)
        for number in reversed(order):
            out = 0
            for successor in flow.blocks[number].successors:
                out |= at_end if successor == flow.exit else before[successor]
            looks, sets = summaries[number]
            into = looks | (out & ~sets)
            changed = changed or into != before[number] or out != after[number]
            before[number], after[number] = into, out
    return References(tuple(after))


def _summary(effects: Iterable[Effects], moved: set[int]) -> tuple[int, int]:
    """Values that some instructions look at before they set them, and those that they set."""
    looked = was_set = 0
    for found in effects:
        used = [*found.reads, *found.writes, *found.updates, *found.fills]
        if found.move:
            used.append(found.move[0])
        if found.view:
            of, out = found.view
            # The data of a tensor is set: of that one that ``out`` is, if a move has made it another.
            used += [of, out] if out in moved else [of]
        looked |= _bits(used) & ~was_set
        if found.move:
            was_set |= 1 << found.move[1]
        if found.view and found.view[1] not in moved:
            was_set |= 1 << found.view[1]
    return looked, was_set


def _bits(values: Iterable[int]) -> int:
    found = 0
    for value in values:
        found |= 1 << value
    return found
