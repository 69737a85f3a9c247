"""Search by subset sums for banks that a buffer must be in, or cannot be in.

A *division* assigns a bank to each buffer. At each instant, a bank must hold all buffers in use for which the
other banks have no room. Its load is the total size of some subset of the buffers in use. So the total sizes of all
subsets show which loads are possible. They also show which buffers must be in the bank, and which buffers cannot be in
the bank. Finally, they show the maximum load of the bank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from etdev.planner.banks.loads import Loads
from etdev.planner.banks.problem import BankedProblem

_STEPS = 400_000_000
"""Limit on the work for sums of subsets. The sums are a set of bits, and a step computes 64 of them."""


@dataclass(frozen=True, slots=True)
class Forced:
    """Restrictions that hold in every division of the buffers that fits into the banks."""

    problem: BankedProblem
    """The problem. Each buffer's choices no longer include banks that cannot hold the buffer."""
    limits: Sequence[Sequence[int]]
    """Maximum number of bytes in use, by bank and rank (position of an instant); at most the capacity."""


def find_forced(loads: Loads) -> Forced | None:
    """Find restrictions that hold in every division that fits. Return None if no division fits.

    ``loads`` must have no buffer in a bank. The search has a limited number of steps, so it may miss restrictions.
    """
    return _Search(loads).run()


class _Search:
    """Search that narrows the possible banks of each buffer until nothing changes."""

    def __init__(self, loads: Loads) -> None:
        self._problem = loads.problem
        self._count = len(self._problem.banks)
        self._capacities = loads.capacities
        self._allowed = {index: set(self._problem.allowed(index)) for index in loads.ranges}
        sizes = {index: [loads.size(index, bank) for bank in range(self._count)] for index in loads.ranges}
        self._uniform = all(len(set(found)) == 1 for found in sizes.values())
        """True if each buffer has the same size in all banks, rounded up to the alignment of each bank."""
        unit = gcd(*(size for found in sizes.values() for size in found)) or 1
        self._unit = unit
        self._sizes = {index: min(found) // unit for index, found in sizes.items()}
        self._room = [capacity // unit for capacity in self._capacities]
        self._limits = [[capacity] * loads.ranks for capacity in self._capacities]
        self._live = dict(_largest_sets(loads.ranges))
        self._steps = _STEPS

    def run(self) -> Forced | None:
        # With two banks, the sums of one bank say all about the other one.
        banks = range(1 if self._count == 2 else self._count)
        changed = True
        while changed and self._steps > 0:
            changed = False
            for rank, live in self._live.items():
                for bank in banks:
                    found = self._narrow(bank, rank, live)
                    if found is None:
                        return None
                    changed = changed or found
        choices = {
            index: tuple(bank for bank in self._problem.allowed(index) if bank in banks)
            for index, banks in self._allowed.items()
            if len(banks) < self._count
        }
        return Forced(replace(self._problem, choices={**self._problem.choices, **choices}), self._limits)

    def _narrow(self, bank: int, rank: int, live: Sequence[int]) -> bool | None:
        """Narrow the banks of the buffers that are in use at an instant, given by its rank.

        Return whether any buffer now has fewer possible banks, or None if the buffers cannot be divided.
        """
        total = sum(self._sizes[index] for index in live)
        others = sum(room for number, room in enumerate(self._room) if number != bank)
        base = sum(self._sizes[index] for index in live if self._allowed[index] == {bank})
        free = [index for index in live if bank in self._allowed[index] and len(self._allowed[index]) > 1]
        low, high = total - others - base, min(self._room[bank], total) - base
        if high < 0 or high < low:
            return None
        low = max(0, low)
        self._steps -= len(free) * (high // 64 + 1)
        if self._steps < 0:
            return False
        sizes = [self._sizes[index] for index in free]
        sums = _between(_sums(1, sizes, high), low)
        if not sums:
            return None
        if self._uniform:
            self._limit(bank, rank, base + low + sums.bit_length() - 1)
            if self._count == 2:
                self._limit(1 - bank, rank, total - base - low - ((sums & -sums).bit_length() - 1))
        return self._split(bank, free, low, high)

    def _split(self, bank: int, free: Sequence[int], low: int, high: int) -> bool:
        """Find buffers that must, or must not, be in a bank. Return True if there are such buffers."""
        sizes = sorted({self._sizes[index] for index in free})
        all_sizes = [self._sizes[index] for index in free]
        self._steps -= len(sizes) * len(free) * (high // 64 + 1)
        if self._steps < 0:
            return False
        changed = False
        for size in sizes:
            rest = list(all_sizes)
            rest.remove(size)
            sums = _sums(1, rest, high)
            outside = _between(sums, low)
            inside = size <= high and _between(sums & ((1 << (high - size + 1)) - 1), max(0, low - size))
            if outside and inside:
                continue
            for index in free:
                if self._sizes[index] == size:
                    self._allowed[index] = {bank} if inside else self._allowed[index] - {bank}
                    changed = True
        return changed

    def _limit(self, bank: int, rank: int, most: int) -> None:
        limits = self._limits[bank]
        limits[rank] = min(limits[rank], most * self._unit)


def _largest_sets(ranges: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Yield ``(rank, buffers in use)`` for each rank that is the last one of some lifetime."""
    starts: dict[int, list[int]] = {}
    for index, (first, _) in ranges.items():
        starts.setdefault(first, []).append(index)
    live: list[int] = []
    for rank in sorted(starts):
        live += starts[rank]
        rest = [index for index in live if ranges[index][1] > rank + 1]
        if len(rest) < len(live):
            yield rank, live
        live = rest


def _sums(start: int, sizes: Sequence[int], most: int) -> int:
    """Add the total of each subset of ``sizes`` to each number in ``start``. Omit sums above ``most``.

    Sets of numbers are integers here, and bit n represents the number n.
    """
    mask = (1 << (most + 1)) - 1
    for size in sizes:
        start |= start << size & mask
    return start


def _between(sums: int, low: int) -> int:
    """Return the sums that are at least ``low``, each reduced by ``low``. Bit n represents the sum n."""
    return sums >> low
