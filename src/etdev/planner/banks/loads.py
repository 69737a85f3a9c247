"""Bytes in use in each bank at each instant, for a division of buffers among banks."""

from __future__ import annotations

from collections.abc import Sequence

from etdev.planner.banks.problem import Bank, BankedProblem
from etdev.planner.occupancy import Timeline
from etdev.planner.problem import Buffer


class Loads:
    """A division of buffers among banks, with the bytes in use in each bank at each instant.

    A division assigns a bank to each buffer. The load of a bank is the total size of its buffers in use. Each size is
    rounded up to the smallest alignment that any buffer has in the bank. A division may have no plan although all loads
    fit, because the free bytes may be fragmented.
    """

    def __init__(self, problem: BankedProblem) -> None:
        self.problem = problem
        self.bank: list[int | None] = [None] * len(problem.buffers)
        """Bank of each buffer, or None for a buffer that is not in a bank yet."""
        active = [index for index, buffer in enumerate(problem.buffers) if buffer.occupies]
        timeline = Timeline([problem.buffers[index] for index in active])
        self.ranges = dict(zip(active, timeline.ranges, strict=True))
        """Lifetime of each buffer that is ever in use, as a half-open range of ranks (see :class:`Timeline`)."""
        self.ranks = timeline.ranks
        self.loads = [[0] * timeline.ranks for _ in problem.banks]
        """Bytes in use, by bank and rank (position of an instant)."""
        units = [
            min((max(problem.buffers[index].alignment, bank.alignment) for index in active), default=1)
            for bank in problem.banks
        ]
        # The buffer at the end of a bank needs no padding.
        self.capacities = [_round_up(bank.size, unit) for bank, unit in zip(problem.banks, units, strict=True)]
        self._sizes = [
            [_size(buffer, bank, unit) for buffer in problem.buffers]
            for bank, unit in zip(problem.banks, units, strict=True)
        ]

    def size(self, index: int, bank: int) -> int:
        """Return the bytes that a buffer takes in a bank."""
        return self._sizes[bank][index]

    def peak(self, bank: int, index: int) -> int:
        """Return the largest load of a bank during the lifetime of a buffer."""
        first, last = self.ranges[index]
        return max(self.loads[bank][first:last])

    def has_room(self, index: int, bank: int) -> bool:
        """Return True if a buffer fits into a bank. Fragmentation is ignored."""
        if index not in self.ranges:
            return True
        return self.peak(bank, index) + self.size(index, bank) <= self.capacities[bank]

    def put(self, index: int, bank: int) -> None:
        """Put a buffer into a bank. The buffer must not be in a bank yet."""
        self.bank[index] = bank
        self._add(index, bank, self.size(index, bank))

    def take(self, index: int) -> int:
        """Take a buffer out of its bank. Return that bank."""
        bank = self.bank[index]
        assert bank is not None
        self.bank[index] = None
        self._add(index, bank, -self.size(index, bank))
        return bank

    def excess(self, bank: int) -> int:
        """Return the number of bytes by which a bank's largest load exceeds its capacity, or 0."""
        return max(0, max(self.loads[bank], default=0) - self.capacities[bank])

    def worst_rank(self, bank: int) -> int:
        """Return the rank of the first instant at which a bank has its largest load."""
        loads = self.loads[bank]
        return loads.index(max(loads))

    def need(self, bank: int) -> int:
        """Return the number of bytes that a bank needs for its largest load.

        The topmost buffer needs no padding, and any buffer may be topmost. So the largest padding does not count.
        """
        if not any(self.loads[bank]):
            return 0
        rank = self.worst_rank(bank)
        padding = (self.size(index, bank) - self.problem.buffers[index].size for index in self.live(bank, rank))
        return self.loads[bank][rank] - max(padding, default=0)

    def members(self, bank: int) -> list[int]:
        """Return the buffers of a bank that are ever in use."""
        return [index for index in self.ranges if self.bank[index] == bank]

    def live(self, bank: int, rank: int) -> list[int]:
        """Return the buffers of a bank that are in use at an instant, given by its rank."""
        return [index for index in self.members(bank) if self.ranges[index][0] <= rank < self.ranges[index][1]]

    def division(self) -> list[int]:
        """Return the bank of each buffer. Each buffer must be in a bank."""
        return [bank for bank in self.bank if bank is not None]

    def fill(self, division: Sequence[int]) -> None:
        """Put each buffer into its bank. No buffer may be in a bank yet."""
        for index, bank in enumerate(division):
            self.put(index, bank)

    def _add(self, index: int, bank: int, size: int) -> None:
        if index in self.ranges:
            first, last = self.ranges[index]
            loads = self.loads[bank]
            loads[first:last] = [load + size for load in loads[first:last]]


def _size(buffer: Buffer, bank: Bank, unit: int) -> int:
    """Return the bytes that a buffer takes in a bank. The result exceeds the capacity if the buffer is too large."""
    if not buffer.occupies:
        return 0
    return _round_up(buffer.size, unit) if buffer.size <= bank.size else _round_up(buffer.size, unit) + unit


def _round_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
