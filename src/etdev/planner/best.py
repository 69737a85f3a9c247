"""The default planner: several orders, the smallest result, and a search from there.

Buffers are placed one after the other, each between what is already in use during its lifetime. Which order is good
differs from problem to problem, so a few are tried, until one meets the lower bound. Where none does, the best of them
is improved.

The result depends on the problem only: effort is counted in steps, never in seconds, and the search draws from a
generator with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etdev.planner.bounds import lower_bound
from etdev.planner.extent import arena_size
from etdev.planner.fit import Fit
from etdev.planner.greedy import greedy
from etdev.planner.improve import improve
from etdev.planner.naive import naive
from etdev.planner.occupancy import Occupancy, Timeline
from etdev.planner.orders import STRATEGIES, find_crowds, order_buffers
from etdev.planner.problem import Problem

_STEPS = 20_000_000
"""Orders are tried until that many steps are spent, which takes about ten seconds; the first is always tried."""
_STEPS_PER_BUFFER = 40
"""Steps that a buffer counts for besides one for each range that it is placed among; about what it takes in time."""


def best(problem: Problem) -> list[int]:
    """The smallest plan that was found; never larger than that of ``greedy`` and of ``naive``."""
    bound = lower_bound(problem)
    size = -1
    least: list[int] = []
    start: list[int] = []  # The order that gave the smallest plan of those that came from an order.
    for offsets, order in _candidates(problem):
        found = arena_size(problem, offsets)
        if size < 0 or found < size:
            size, least, start = found, offsets, order or start
        if size == bound:
            return least
    return improve(problem, start, size, max(bound, problem.capacity or 0)) or least


def _candidates(problem: Problem) -> Iterator[tuple[list[int], list[int]]]:
    """Plans, and the orders that they were made in, from the most promising on; at last those of other planners."""
    buffers = problem.buffers
    timeline = Timeline(buffers)
    crowds = find_crowds(buffers, timeline)
    free = [index for index, buffer in enumerate(buffers) if buffer.pin is None and buffer.occupies]
    steps = 0
    for strategy in STRATEGIES:
        if steps <= _STEPS:
            order = order_buffers(buffers, free, crowds, strategy.key)
            offsets, spent = _place(problem, timeline, order, strategy.fit)
            steps += spent
            yield offsets, order
    yield naive(problem), []
    yield greedy(problem), []


def _place(problem: Problem, timeline: Timeline, order: Sequence[int], fit: Fit) -> tuple[list[int], int]:
    """Offsets, and the steps that were spent."""
    buffers = problem.buffers
    # That its size is rounded up to what divides all offsets costs no other buffer a place, and ranges that touch are
    # one for the tree.
    unit = min((buffer.alignment for buffer in buffers if buffer.occupies), default=1)
    occupancy = Occupancy(timeline.ranks)
    offsets = [buffer.pin or 0 for buffer in buffers]
    for index, buffer in enumerate(buffers):
        if buffer.pin is not None and buffer.occupies:
            occupancy.use(*timeline.ranges[index], buffer.pin, buffer.pin + buffer.size)
    steps = 0
    for index in order:
        buffer = buffers[index]
        used = occupancy.used(*timeline.ranges[index])
        steps += _STEPS_PER_BUFFER + len(used)
        begin = fit(used, buffer.size, buffer.alignment)
        offsets[index] = begin
        occupancy.use(*timeline.ranges[index], begin, -(-(begin + buffer.size) // unit) * unit)
    return offsets, steps
