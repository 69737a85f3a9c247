"""Offsets of the buffers that were assigned to one bank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from etdev.planner.banks.problem import BankedProblem
from etdev.planner.best import plan_within
from etdev.planner.extent import arena_size
from etdev.planner.fit import first_fit
from etdev.planner.occupancy import Timeline
from etdev.planner.orders import STRATEGIES, find_crowds, order_buffers
from etdev.planner.placing import PLACING_STEPS, place_in_order, size_of
from etdev.planner.problem import Buffer, Problem

_SEARCH_STEPS = 20_000_000
"""Limit on the steps of one exact search, which runs after all strategies have failed."""


class Packer:
    """Packer of buffers into banks, with limits on the effort of all packings together."""

    def __init__(self, problem: BankedProblem, *, packings: int, searches: int) -> None:
        self.problem = problem
        self.packings = packings
        """Number of packings that remain."""
        self._searches = searches

    def pack(self, bank: int, members: Iterable[int], *, search: bool = False) -> dict[int, int] | None:
        """Return offsets at which the buffers fit into a bank, or None if none were found.

        ``search`` allows an exact search after all strategies have failed.
        """
        indices = sorted(members)
        if not indices:
            return {}
        self.packings -= 1
        buffers = [self.problem.in_bank(index, bank) for index in indices]
        offsets = self._place(buffers, self.problem.banks[bank].size, search=search)
        return None if offsets is None else dict(zip(indices, offsets, strict=True))

    def _place(self, buffers: Sequence[Buffer], capacity: int, *, search: bool) -> Sequence[int] | None:
        timeline = Timeline(buffers)
        crowds = find_crowds(buffers, timeline)
        for strategy in STRATEGIES:
            order = order_buffers(buffers, range(len(buffers)), crowds, strategy.key)
            offsets, _ = place_in_order(buffers, timeline, order, strategy.fit, PLACING_STEPS)
            if size_of(buffers, offsets) <= capacity:
                return offsets
        if not search or self._searches <= 0:
            return None
        self._searches -= 1
        problem = Problem(tuple(buffers), capacity)
        found = plan_within(problem, _SEARCH_STEPS)
        return found if arena_size(problem, found) <= capacity else None


def free_offset(problem: BankedProblem, bank: int, index: int, offsets: dict[int, int]) -> int | None:
    """Return an offset at which a buffer fits between the buffers of a bank, or None if there is no such offset.

    ``offsets`` maps the buffers of the bank that are ever in use to their offsets.
    """
    buffer = problem.in_bank(index, bank)
    used = sorted(
        (offset, offset + other.size)
        for number, offset in offsets.items()
        for other in (problem.buffers[number],)
        if other.start < buffer.end and buffer.start < other.end
    )
    offset = first_fit(used, buffer.size, buffer.alignment)
    return offset if offset + buffer.size <= problem.banks[bank].size else None
