"""A lower bound on the cost of traffic, and prices of memory that guide the division of buffers.

The bound is Lagrangian: at each instant, each bank has a price per byte in use. A buffer pays the price of its bank
over its lifetime, in addition to the cost of its traffic. The bound is the sum of what each buffer pays in its cheapest
bank, minus the price of all memory that can be in use. It is a lower bound for any prices. Subgradient steps raise the
bound: a price rises where a bank is too full, and falls elsewhere.

A *division* assigns a bank to each buffer. A *rank* is the position of an instant among all start instants.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import lcm
from operator import mul

from etdev.planner.banks.loads import Loads

_ROUNDS = 300
"""Maximum number of subgradient steps."""
_STEPS = 30_000_000
"""Limit on the work of the search: steps * banks * (buffers + instants)."""
_PATIENCE = 12
"""If this number of steps find no better bound, the search halves the step length."""


class Prices:
    """Price of a byte for each bank and each rank, and the lower bound that follows from these prices.

    Each division that costs less than ``bound`` exceeds the capacity of a bank.
    """

    def __init__(self, loads: Loads, limits: Sequence[Sequence[int]], upper: Fraction) -> None:
        """Find prices for the buffers of ``loads``.

        ``limits`` has the maximum number of bytes in use, by bank and rank. ``upper`` is an upper limit for the bound:
        the search stops there.
        """
        self._loads, self._problem, self._limits = loads, loads.problem, limits
        self.bound = Fraction(0)
        self.prices = [[0] * loads.ranks for _ in self._problem.banks]
        """Prices that gave the best bound, by bank and rank, in units of ``1 / scale``."""
        self.scale = 1 << 20
        self._unit = lcm(*(bank.cost.denominator for bank in self._problem.banks))
        """Common denominator of the costs. Sums of costs and prices count units of ``1 / (scale * unit)``."""
        self._free, self._choices = self._find_choices()
        self._search(upper)

    def reduced_costs(self, index: int) -> list[Fraction]:
        """Return a buffer's cost in each bank: the cost of its traffic, plus the price of its bytes."""
        first, last = self._loads.ranges[index]
        return [
            self._problem.cost(index, bank)
            + Fraction(self._loads.size(index, bank) * sum(self.prices[bank][first:last]), self.scale)
            for bank in range(len(self._problem.banks))
        ]

    def _search(self, upper: Fraction) -> None:
        problem, loads = self._problem, self._loads
        work = max(1, (len(loads.ranges) + loads.ranks) * len(problem.banks))
        prices = [list(row) for row in self.prices]
        best, length, stale = Fraction(-1), Fraction(1), 0
        for _ in range(min(_ROUNDS, max(_PATIENCE, _STEPS // work))):
            bound, excess = self._evaluate(prices)
            stale += 1
            if bound > best:
                best, stale = bound, 0
                self.prices = [list(row) for row in prices]
            norm = sum(value * value for row in excess for value in row)
            if not norm or best >= upper:
                break
            if stale > _PATIENCE:
                length, stale = length / 2, 0
                prices = [list(row) for row in self.prices]
            step = int(length * (upper - bound) * self.scale * self.scale / norm)
            for row, over in zip(prices, excess, strict=True):
                row[:] = [max(0, price + step * value // self.scale) for price, value in zip(row, over, strict=True)]
        self.bound = max(Fraction(0), best)

    def _find_choices(self) -> tuple[int, list[tuple[int, int, list[tuple[int, int, int]]]]]:
        """Return a pair: the least total cost of all unused buffers, and a list with one entry for each used buffer.

        An entry is ``(first rank, end rank, choices)``. Each choice is ``(traffic cost, bank, size in the bank)``.
        """
        problem, loads = self._problem, self._loads
        costs = [int(bank.cost * self._unit) * self.scale for bank in problem.banks]
        free, choices = 0, []
        for index, traffic in enumerate(problem.traffic):
            allowed = problem.allowed(index)
            if index in loads.ranges:
                found = [(traffic * costs[bank], bank, loads.size(index, bank)) for bank in allowed]
                choices.append((*loads.ranges[index], found))
            else:
                free += traffic * min(costs[bank] for bank in allowed)
        return free, choices

    def _evaluate(self, prices: Sequence[Sequence[int]]) -> tuple[Fraction, list[list[int]]]:
        """Return the lower bound for these prices, and the excess (load minus limit) by bank and rank."""
        unit = self._unit
        sums = [[0, *accumulate(row)] for row in prices]
        changes = [[0] * (self._loads.ranks + 1) for _ in prices]
        total = self._free
        for first, last, choices in self._choices:
            begin, end = ([row[rank] for row in sums] for rank in (first, last))
            least, chosen, size = min(
                [(cost + size * unit * (end[bank] - begin[bank]), bank, size) for cost, bank, size in choices]
            )
            total += least
            changes[chosen][first] += size
            changes[chosen][last] -= size
        excess = []
        for bank, row in enumerate(changes):
            limits = self._limits[bank]
            total -= unit * sum(map(mul, limits, prices[bank]))
            excess.append([load - limit for load, limit in zip(accumulate(row[:-1]), limits, strict=True)])
        return Fraction(total, self.scale * unit), excess
