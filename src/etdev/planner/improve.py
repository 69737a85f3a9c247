"""A search for a smaller plan that starts from the order of a good plan.

Buffers are placed in order, each at the lowest free offset. The arena is one byte smaller than the best plan so far. A
buffer that does not fit moves to a random earlier place in the order, and placing continues from that place. Whenever
all buffers fit, the arena shrinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from etdev.planner.extent import arena_size
from etdev.planner.fit import first_fit
from etdev.planner.problem import Buffer, Problem

_STEPS = 2_000_000
"""Limit on the steps of one search: about half a second. Each visit of an overlapping buffer is one step."""
_STEPS_PER_MOVE = 100
"""A search for n buffers may take up to this number times n * n steps, so small searches are fast."""
_PAIRS = 1_000_000
"""Largest number of pairs of overlapping buffers for this search. More pairs would need too much memory and time."""


def improve(problem: Problem, order: Sequence[int], size: int, target: int) -> list[int] | None:
    """Return the offsets of a plan smaller than ``size``, or None if the search found no such plan.

    ``order`` contains the indices of all buffers to place. All other buffers have pins or are never in use. The search
    stops at a plan of ``target`` bytes or fewer.
    """
    overlaps = _find_overlaps(problem.buffers)
    if overlaps is None:
        return None
    search = _Search(problem.buffers, order, overlaps)
    found: list[int] | None = None
    while size > target and search.fit(size - 1):
        found = search.offsets()
        size = arena_size(problem, found)
    return found


class _Search:
    """An order of buffers, and the byte ranges of the buffers placed so far."""

    def __init__(self, buffers: Sequence[Buffer], order: Sequence[int], overlaps: Sequence[Sequence[int]]) -> None:
        self._buffers = buffers
        self._order = list(order)
        self._overlaps = overlaps
        self._random = Random(0)
        self._steps = min(_STEPS, _STEPS_PER_MOVE * len(order) ** 2)
        # (begin, end) of each placed buffer, None for the others.
        self._placed: list[tuple[int, int] | None] = [
            None if buffer.pin is None else (buffer.pin, buffer.pin + buffer.size) for buffer in buffers
        ]

    def fit(self, size: int) -> bool:
        """Place all buffers in an arena of ``size`` bytes. Return False if that fails within the limit on steps."""
        place = 0
        self._clear(0, len(self._order))
        while place < len(self._order):
            if self._steps < 0:
                return False
            if self._put(self._order[place], size):
                place += 1
                continue
            if place == 0:
                return False  # Only pinned buffers block this one, and they cannot move.
            earlier = self._random.randrange(place)
            self._order.insert(earlier, self._order.pop(place))
            self._clear(earlier, place + 1)
            place = earlier
        return True

    def _put(self, index: int, size: int) -> bool:
        """Place one buffer; return False if the arena is too small for it."""
        self._steps -= 1 + len(self._overlaps[index])
        buffer = self._buffers[index]
        used = sorted(entry for other in self._overlaps[index] if (entry := self._placed[other]) is not None)
        begin = first_fit(used, buffer.size, buffer.alignment)
        if begin + buffer.size > size:
            return False
        self._placed[index] = (begin, begin + buffer.size)
        return True

    def _clear(self, first: int, last: int) -> None:
        for index in self._order[first:last]:
            self._placed[index] = None

    def offsets(self) -> list[int]:
        """Return the offsets of the buffers. The offset of a buffer that is never in use is 0."""
        return [0 if entry is None else entry[0] for entry in self._placed]


def _find_overlaps(buffers: Sequence[Buffer]) -> list[list[int]] | None:
    """Return, for each buffer, the buffers with overlapping lifetimes. Return None if there are too many pairs."""
    events = [(buffer.end, False, index) for index, buffer in enumerate(buffers) if buffer.occupies]
    events += [(buffer.start, True, index) for index, buffer in enumerate(buffers) if buffer.occupies]
    events.sort()
    overlaps: list[list[int]] = [[] for _ in buffers]
    live: dict[int, None] = {}  # A dictionary used as a set, since its order is the same in every run.
    pairs = 0
    for _, begins, index in events:
        if not begins:
            del live[index]
            continue
        pairs += len(live)
        if pairs > _PAIRS:
            return None
        overlaps[index] = list(live)
        for other in live:
            overlaps[other].append(index)
        live[index] = None
    return overlaps
