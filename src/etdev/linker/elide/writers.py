"""Positions of the instructions that write each value, with searches in logarithmic time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import accumulate

from etdev.program.analysis.reaching import Reaching


def any_between(ordered: Sequence[int], after: int, before: int) -> bool:
    """Return whether an ascending sequence has a number that is greater than ``after`` and less than ``before``."""
    index = bisect_right(ordered, after)
    return index < len(ordered) and ordered[index] < before


class Writers:
    """Positions of the instructions that write a value, or redirect the value to another tensor."""

    def __init__(self, found: Reaching, planned: Collection[int]) -> None:
        """Collect the positions of the instructions that write or redirect each value.

        ``planned`` contains the values in planned memory.
        """
        self._of: dict[int, list[int]] = defaultdict(list)
        for position, effect in enumerate(found.effects):
            ends = [pair[1] for pair in (effect.view, effect.move) if pair]
            for value in {*effect.writes, *effect.updates, *effect.fills, *ends}:
                self._of[value].append(position)
        unfixed = [value for value in self._of if value in found.references]
        unplanned = [value for value in self._of if value not in planned and value not in found.references]
        self._unfixed = sorted(position for value in unfixed for position in self._of[value])
        self._unplanned = sorted(position for value in unplanned for position in self._of[value])
        self._added: list[int] = []
        """Positions at which a view has replaced a copy, in ascending order."""
        flow = found.flow
        loops = sorted(
            (block.end, flow.blocks[successor].start)
            for number, block in enumerate(flow.blocks)
            for successor in block.successors
            if successor <= number
        )
        self._loop_ends = [end for end, _ in loops]
        self._loop_starts = list(accumulate((start for _, start in reversed(loops)), min))[::-1]
        """For each loop, the smallest start among this loop and all later loops. Loops are sorted by end."""

    def of(self, value: int) -> Sequence[int]:
        """Return the positions of the instructions that write a value, in ascending order."""
        return self._of.get(value, ())

    def add_view(self, position: int) -> None:
        """Record that a view replaces the copy at a position. Callers must pass positions in ascending order."""
        self._added.append(position)

    def any_unfixed(self, after: int, before: int, *, unplanned: bool) -> bool:
        """Return whether a value without a fixed address is written between two positions.

        If ``unplanned`` is set, also consider values outside of planned memory.
        """
        lists = [self._unfixed, self._added, *([self._unplanned] if unplanned else [])]
        return any(any_between(positions, after, before) for positions in lists)

    def may_follow(self, value: int, position: int) -> bool:
        """Return whether an instruction that writes a value can run after the instruction at a position."""
        positions = self.of(value)
        if not positions:
            return False
        index = bisect_right(self._loop_ends, position)  # The first loop that ends after the position.
        in_loop = index < len(self._loop_ends) and self._loop_starts[index] <= positions[-1]
        return positions[-1] > position or in_loop
