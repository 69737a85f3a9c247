"""Placement of buffers one after another."""

from __future__ import annotations

from collections.abc import Sequence

from etdev.planner.fit import Fit
from etdev.planner.occupancy import Occupancy, Timeline
from etdev.planner.problem import Buffer

PLACING_STEPS = 20_000_000
"""After this number of steps (about four seconds), the planner tries no further order. It tries at least one."""
ORDER_STEPS = 120_000_000
"""Limit on the steps of the first order: about 20 seconds."""
STEPS_PER_BUFFER = 40
"""Fixed number of steps for placing a buffer, in addition to one step per range in use during its lifetime.

The total is roughly proportional to the time that placing takes.
"""


def size_of(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    return max(offset + buffer.size for buffer, offset in zip(buffers, offsets, strict=True))


def place_in_order(
    buffers: Sequence[Buffer], timeline: Timeline, order: Sequence[int], fit: Fit, most_steps: int
) -> tuple[list[int], int]:
    """Place all buffers without a pin in this order. Return all offsets and the number of steps spent.

    When ``most_steps`` are spent, each remaining buffer is placed above all bytes in use during its lifetime.
    """
    most_steps = max(most_steps, 2 * STEPS_PER_BUFFER * len(order))
    # Round sizes up to a number that divides all offsets. This takes no space from other buffers, and adjacent ranges
    # become one range in the tree.
    unit = min(buffer.alignment for buffer in buffers)
    occupancy = Occupancy(timeline)
    offsets = [buffer.pin or 0 for buffer in buffers]
    for index, buffer in enumerate(buffers):
        if buffer.pin is not None:
            occupancy.use(index, buffer.pin, buffer.pin + buffer.size)
    steps, coarse = 0, False
    for index in order:
        if steps > most_steps and not coarse:
            occupancy.coarsen()
            coarse = True
        buffer = buffers[index]
        used = occupancy.used(index)
        steps += STEPS_PER_BUFFER + len(used)
        begin = fit(used, buffer.size, buffer.alignment)
        offsets[index] = begin
        occupancy.use(index, 0 if coarse else begin, -(-(begin + buffer.size) // unit) * unit)
    return offsets, steps
