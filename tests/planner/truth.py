"""Properties of a plan, found the slow way: over every pair, every instant, every order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations

from etdev.planner import Buffer, Plan, Problem


def problem(*rows: tuple[int, int, int] | Buffer, alignment: int = 1) -> Problem:
    """Build the problem of some (size, start, end)."""
    return Problem(tuple(row if isinstance(row, Buffer) else Buffer(*row, alignment) for row in rows))


def flaws(planned: Problem, offsets: Sequence[int]) -> list[str]:
    """Return all errors of the offsets."""
    found = []
    for index, (buffer, offset) in enumerate(zip(planned.buffers, offsets, strict=True)):
        if offset < 0 or offset % buffer.alignment or buffer.pin not in (None, offset):
            found.append(f"{index} at {offset}")
    for first, second in combinations(range(len(offsets)), 2):
        if live_together(planned.buffers[first], planned.buffers[second]) and share_bytes(
            planned, offsets, first, second
        ):
            found.append(f"{first} and {second}")
    return found


def live_together(first: Buffer, second: Buffer) -> bool:
    """Return whether both are in use at some instant."""
    return max(first.start, second.start) < min(first.end, second.end)


def share_bytes(planned: Problem, offsets: Sequence[int], first: int, second: int) -> bool:
    """Return whether their byte ranges overlap."""
    begin = max(offsets[first], offsets[second])
    return begin < min(offsets[first] + planned.buffers[first].size, offsets[second] + planned.buffers[second].size)


def size(planned: Problem, offsets: Sequence[int]) -> int:
    """Return the bytes of the arena."""
    return max((o + b.size for o, b in zip(offsets, planned.buffers, strict=True) if b.start < b.end), default=0)


def check(planned: Problem, plan: Plan) -> None:
    """Check a plan."""
    assert not flaws(planned, plan.offsets)
    assert plan.size == size(planned, plan.offsets)
    assert plan.lower_bound <= plan.size
    assert plan.optimal == (plan.size == plan.lower_bound)


def optimum(planned: Problem) -> int | None:
    """Return the size of the smallest plan, by trying all orders from the bottom; None if pinned buffers collide."""
    sizes = (_stack(planned, order) for order in permutations(range(len(planned.buffers))))
    return min((found for found in sizes if found is not None), default=None)


def _stack(planned: Problem, order: Sequence[int]) -> int | None:
    """Return the size of the plan in which each buffer is above all earlier ones with which it is in use.

    Every plan is such a stack, in the order of its offsets, after gaps are removed.
    """
    offsets = [0] * len(order)
    for place, index in enumerate(order):
        buffer = planned.buffers[index]
        below = [other for other in order[:place] if planned.buffers[other].size and buffer.size]
        floor = max(
            (offsets[o] + planned.buffers[o].size for o in below if live_together(buffer, planned.buffers[o])),
            default=0,
        )
        offsets[index] = -(-floor // buffer.alignment) * buffer.alignment
        if buffer.pin is not None:
            if buffer.pin < floor:
                return None
            offsets[index] = buffer.pin
    return size(planned, offsets)
