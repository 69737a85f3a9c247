"""What is true of a plan, found out the slow way: by looking at every pair, every instant, every order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations

from etdev.planner import Buffer, Plan, Problem


def problem(*rows: tuple[int, int, int] | Buffer, alignment: int = 1) -> Problem:
    """The problem of some (size, start, end)."""
    return Problem(tuple(row if isinstance(row, Buffer) else Buffer(*row, alignment) for row in rows))


def flaws(planned: Problem, offsets: Sequence[int]) -> list[str]:
    """Everything that is wrong with the offsets."""
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
    """Whether there is an instant at which both are in use."""
    return max(first.start, second.start) < min(first.end, second.end)


def share_bytes(planned: Problem, offsets: Sequence[int], first: int, second: int) -> bool:
    """Whether there is a byte that is in the ranges of both."""
    begin = max(offsets[first], offsets[second])
    return begin < min(offsets[first] + planned.buffers[first].size, offsets[second] + planned.buffers[second].size)


def size(planned: Problem, offsets: Sequence[int]) -> int:
    """Bytes of the arena."""
    return max((o + b.size for o, b in zip(offsets, planned.buffers, strict=True) if b.start < b.end), default=0)


def check(planned: Problem, plan: Plan) -> None:
    """Hold a plan against the truth."""
    assert not flaws(planned, plan.offsets)
    assert plan.size == size(planned, plan.offsets)
    assert plan.lower_bound <= plan.size
    assert plan.optimal == (plan.size == plan.lower_bound)


def optimum(planned: Problem) -> int | None:
    """Size of the smallest plan, by trying all orders from the bottom up; None if pinned buffers collide."""
    sizes = (_stack(planned, order) for order in permutations(range(len(planned.buffers))))
    return min((found for found in sizes if found is not None), default=None)


def _stack(planned: Problem, order: Sequence[int]) -> int | None:
    """Size of the plan in which each buffer lies above all before it that it is in use together with.

    Every plan is such a stack, in the order of its offsets, with some air taken out.
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
