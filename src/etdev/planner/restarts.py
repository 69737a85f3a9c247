"""Many short searches instead of one long search.

The time of an exact search depends on its rule and on its order of buffers. The time varies by factors of a thousand
and more. The best rule and order are not known in advance. So each search stops early, and the next search uses a
different rule or order. Some searches are longer, so that one search eventually completes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from etdev.planner.kernel import PLAIN, Runner, compiled_runner
from etdev.planner.search import FOUND, STOPPED, Rule, search
from etdev.planner.state import STEPS, make_state
from etdev.planner.tables import Tables, convert

_RULES = (Rule(1, 1), Rule(1, 0), Rule(0, 1), Rule(0, 0, 1), Rule(1, 0, 0, 1))
_NODES_PER_BUFFER = 12
"""Maximum number of answers (decisions) per buffer in the shortest searches. A plan takes about one per buffer."""
_LEAST_COUNTED = 40
"""With fewer buffers, the limit on answers is as high as for this number of buffers.

This leaves room for a proof that no plan fits. The proof takes more answers than a plan.
"""
_DISORDER = 0.3
"""Largest distance that a buffer moves in a randomly changed order, as a fraction of the number of buffers."""
_PLAIN_STEPS = 5_000_000
"""Total steps after which searches run compiled, if numba is installed. In Python, these steps take about a second."""


class Restarts:
    """A series of searches for a plan of the same buffers. Each call of :meth:`fit` may use another capacity."""

    def __init__(self, tables: Tables, spent: int = 0) -> None:
        """Prepare the searches. ``spent`` is the number of steps spent so far by other searches for the problem."""
        self.steps = 0
        """Number of steps spent."""
        self._spent = spent
        self._plain = self._tables = tables
        self._runner: Runner = PLAIN
        self._orders = _make_orders(tables)
        self._random = Random(0)
        self._turns: dict[int, Iterator[tuple[int, int]]] = {}
        """Maps a capacity to the searches for it that are left, each as ``(number, relative length)``."""

    def fit(self, capacity: int, most_steps: int) -> tuple[int, list[int]]:
        """Search for a plan that fits the capacity, for at most ``most_steps`` steps.

        A second call with the same capacity begins with the search after the last one of the first call.

        Return ``FOUND`` and the offsets of the plan, ``NONE`` if no plan fits, or ``STOPPED`` if the steps were not
        enough.
        """
        end = self.steps + most_steps
        most_nodes = _NODES_PER_BUFFER * max(len(self._orders[0]) + 1, _LEAST_COUNTED)
        for turn, length in self._turns.setdefault(capacity, enumerate(restart_lengths())):
            rule = _RULES[turn % len(_RULES)]
            # Try each rule with each order once. After that, disturb the orders.
            order = self._orders[(turn + turn // len(_RULES)) % len(self._orders)]
            if turn >= len(_RULES) * len(self._orders):
                order = self._disturb(order)
            result, offsets = self._search(rule, order, capacity, most_nodes * length, end - self.steps)
            if result != STOPPED or self.steps >= end:
                return result, offsets
        raise AssertionError  # restart_lengths() never ends.

    def _search(
        self, rule: Rule, order: Sequence[int], capacity: int, most_nodes: int, most_steps: int
    ) -> tuple[int, list[int]]:
        if self._spent + self.steps > _PLAIN_STEPS:
            self._compile()
        rank = [0] * len(order)
        for place, index in enumerate(order):
            rank[index] = place
        state = make_state(self._plain, self._runner)
        table = self._runner.table(rank)
        result = self._runner.call(search, self._tables, state, table, capacity, *rule, most_nodes, most_steps)
        self.steps += len(order) + int(state.used[STEPS])
        return int(result), [int(low) for low in state.low] if result == FOUND else []

    def _compile(self) -> None:
        """Switch to compiled kernels if numba is installed."""
        runner = compiled_runner()
        if runner is not None and self._runner is PLAIN:
            self._runner = runner
            self._tables = convert(self._plain, runner)

    def _disturb(self, order: Sequence[int]) -> list[int]:
        reach = _DISORDER * self._random.random() * len(order)
        places = [place + reach * self._random.random() for place in range(len(order))]
        return [order[place] for place in sorted(range(len(order)), key=places.__getitem__)]


def restart_lengths() -> Iterator[int]:
    """Yield the relative lengths of the searches: 1, 1, 2, 1, 1, 2, 4, and so on.

    Let T be the expected total time with optimal lengths. With these lengths, the expected total time is at most a
    constant times T log T.
    Source: Luby, Sinclair, Zuckerman, "Optimal speedup of Las Vegas algorithms", 1993.
    """
    count, length = 1, 1
    while True:
        yield length
        if count & -count == length:
            count, length = count + 1, 1
        else:
            length *= 2


def _make_orders(tables: Tables) -> list[list[int]]:
    """Return five orders of the buffers. The keys combine a buffer's lifetime, size, and peak in the lifetime."""
    count = len(tables.size)
    totals = [
        sum(tables.height[tables.crowd[place]] for place in range(tables.crowd_start[s], tables.crowd_start[s + 1]))
        for s in range(len(tables.spare))
    ]
    size = tables.size
    width = tables.width
    area = [size[index] * width[index] for index in range(count)]
    total = [max(totals[tables.first[index] : tables.last[index]]) for index in range(count)]
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda index: (-total[index], -width[index], -area[index]),
        lambda index: (-total[index], -area[index], -width[index]),
        lambda index: (-size[index], -width[index]),
        lambda index: (-width[index], -area[index], -total[index]),
        lambda index: (-area[index], -total[index]),
    )
    return [sorted(range(count), key=key) for key in keys]
