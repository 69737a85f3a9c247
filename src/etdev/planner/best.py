"""The default planner: tries several orders of buffers, then searches for a smaller plan.

The planner places buffers one after another. It places each buffer in a gap between the ranges that are in use during
the buffer's lifetime. The best order differs from problem to problem, so the planner tries a few orders until a plan
meets the lower bound. If no plan does, further attempts follow. If the problem is not too large, the planner searches
all possible plans, first briefly and later for longer. If few buffers are in use across some instants, it divides the
buffers at these instants and searches segment by segment. It replans the buffers that end too high, together with the
buffers around them.

The result depends only on the problem. Effort is counted in steps, never in seconds. Random numbers come from a
generator with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etdev.planner.bounds import lower_bound
from etdev.planner.extent import arena_size
from etdev.planner.greedy import greedy
from etdev.planner.improve import improve
from etdev.planner.naive import naive
from etdev.planner.occupancy import Timeline
from etdev.planner.orders import STRATEGIES, Strategy, find_crowds, order_buffers
from etdev.planner.parts import Part, find_parts
from etdev.planner.placing import ORDER_STEPS, PLACING_STEPS, place_in_order, size_of
from etdev.planner.problem import Problem
from etdev.planner.restarts import Restarts
from etdev.planner.search import FOUND, NONE
from etdev.planner.segments import Segments
from etdev.planner.strips import Strips
from etdev.planner.tables import make_tables
from etdev.planner.windows import Fixer

_MOST_SEARCHED = 4_000
"""Largest number of buffers in one exact search."""
_MOST_PAIRS = 400_000
"""Largest number of pairs of overlapping lifetimes for which an exact search runs."""
_SEARCH_STEPS = 200_000_000
"""Largest number of steps in one search for a part (group of buffers), unless the problem has a capacity."""
_ALL_STEPS = 160_000_000
"""Limit on the steps of all searches for a problem without a capacity: about 15 seconds in Python."""
_DEMANDED_STEPS = 20_000_000_000
"""Limit on the steps of all searches for a problem with a capacity."""
_STEPS_PER_PAIR = 4_000
"""A search of a part with n buffers may take up to this number times n * n steps.

So a search with few buffers takes almost no time.
"""
_LEAST_COUNTED = 40
"""Smallest value used for n in ``_STEPS_PER_PAIR``. With pins, a proof takes more steps than n suggests."""
_BRIEF_STEPS = 1_000_000
"""Limit on the steps of the first search: about a quarter of a second in Python."""
_SECOND_STEPS = 30_000_000
"""Limit on the steps of the second search, which follows after other attempts."""
_PROBES = 16
"""Number of capacities to try between an unreached goal and the size of the smallest plan so far."""
_FIXING_STEPS = 25_000_000
"""Limit on the steps for planning by segments down to the goal.

The same limit applies to planning by segments above the goal, and to replanning the buffers that end too high.
"""
_TURNS = 4
"""Maximum number of times that all buffers are placed again. Each time, the buffers that still end too high come first.

The limit is half of this number for parts with more than ``_MANY`` buffers. It is 0 for parts with at most ``_FEW``
buffers, for parts in strips, and for parts whose first placement took long.
"""
_MANY = 200_000
_MANY_CLASSED = 20_000
"""A part with more buffers than this is first placed in strips, or else by the second strategy.

Other strategies may take too long.
"""
_MOST_ATTEMPTED = 100_000
"""If a part with more buffers than this was first placed in strips, the planner makes no further attempts."""
_MANY_IN_STRIPS = 2_000
"""For a part with more buffers than this, plans in strips come before other attempts.

A part with more than ``_MANY_CLASSED`` has a plan in strips already.
"""
_ONLY_IN_STRIPS = 5_000
"""If strips improve the first plan of a part with more buffers than this, the planner makes no other attempts.

They would take many times as long, and rarely help.
"""
_FEW = 300
"""In a part with at most this many buffers, a window around any buffer usually contains the whole part."""
_MOST_COMPARED = 20_000
"""Largest number of buffers for which ``best`` also tries ``greedy``, which takes minutes with more buffers."""


class Proven(list[int]):
    """Offsets of a plan, with a proved lower bound on the size of all plans."""

    lower_bound: int = 0
    """Minimum number of bytes that any plan needs."""


def best(problem: Problem) -> list[int]:
    """Return the offsets of the smallest plan found.

    The plan is at most as large as the plan of ``naive``. For up to 20,000 buffers, the plan is also at most as large
    as the plan of ``greedy``.
    """
    return plan_within(problem, _ALL_STEPS if problem.capacity is None else _DEMANDED_STEPS)


def plan_within(problem: Problem, steps: int) -> Proven:
    """Return the offsets of the smallest plan found. ``steps`` is the limit on the steps of all exact searches."""
    bound = lower_bound(problem)
    target = max(bound, problem.capacity or 0)
    offsets = Proven(buffer.pin or 0 for buffer in problem.buffers)
    parts = find_parts(problem, offsets)
    for part in parts:
        _place_part(part, target - part.base)
    size = bound
    budget = _Budget(steps)
    for part in sorted(parts, key=lambda part: -part.base - part.size):
        goal = max(size, target) - part.base
        if part.size > goal:
            _Refinement(part, goal, budget, demanded=problem.capacity is not None).run()
        size = max(size, part.base + part.size)
        offsets.lower_bound = max(offsets.lower_bound, part.base + part.bound)
    for part in parts:
        for index, offset in zip(part.indices, part.offsets, strict=True):
            offsets[index] = part.base + offset
    return offsets if arena_size(problem, offsets) <= target else _least(problem, offsets)


def _least(problem: Problem, offsets: Proven) -> Proven:
    """Return the smallest of three plans: ``offsets``, the plan of ``naive`` and the plan of ``greedy``."""
    least, size = offsets, arena_size(problem, offsets)
    for planner in (naive, greedy) if len(problem.buffers) <= _MOST_COMPARED else (naive,):
        other = Proven(planner(problem))
        if arena_size(problem, other) < size:
            least, size = other, arena_size(problem, other)
    least.lower_bound = offsets.lower_bound
    return least


@dataclass(slots=True)
class _Budget:
    """Number of steps that remain for all searches of a problem."""

    left: int


class _Refinement:
    """Attempts to shrink the plan of a part: a group of buffers that is planned separately."""

    def __init__(self, part: Part, goal: int, budget: _Budget, *, demanded: bool) -> None:
        self._part = part
        self._goal = goal
        self._budget = budget
        count = len(part.buffers)
        self._steps = min(_SEARCH_STEPS, _STEPS_PER_PAIR * max(count, _LEAST_COUNTED) ** 2)
        self._demanded = demanded
        self._fixing = min(_FIXING_STEPS, self._steps)
        self._turns = 0 if count <= _FEW else _TURNS if count <= _MANY else _TURNS // 2
        # In strips, there is no order in which buffers could come first.
        if part.is_in_strips or part.steps > 2 * PLACING_STEPS:
            self._turns = 0
        tables = make_tables(part.buffers, _MOST_PAIRS) if count <= _MOST_SEARCHED else None
        self._restarts = tables and Restarts(tables)
        self._segments = Segments(part.buffers)

    def run(self) -> None:
        """Run the attempts, quick attempts first, until the plan reaches the goal."""
        count = len(self._part.buffers)
        if self._part.is_in_strips and count > _MOST_ATTEMPTED:
            return
        if _MANY_IN_STRIPS < count <= _MANY_CLASSED:
            is_smaller = self._plan_in_strips()
            if self._part.size <= self._goal or (is_smaller and count > _ONLY_IN_STRIPS):
                return
        few = count <= _FEW
        fix = [] if self._restarts is not None and few else [self._fix_goal]
        whole = [self._place_further, self._search_briefly, self._fit_segments, self._search_longer]
        attempts = [*whole, *fix] if self._restarts is not None else [*fix, *whole, *fix]
        insist = [self._insist] if self._demanded else []
        for attempt in (*attempts, self._improve, *insist, self._narrow):
            attempt()
            if self._part.size <= max(self._goal, self._part.bound):
                return

    def _plan_in_strips(self) -> bool:
        """Return True if a plan in strips is smaller than the smallest plan so far."""
        part = self._part
        strips = Strips(part.buffers)
        is_smaller = False
        for offsets in strips.plans():
            is_smaller |= _take_smaller(part, offsets)
            if part.size <= self._goal:
                break
        self._budget.left -= strips.steps
        return is_smaller

    def _search_briefly(self) -> None:
        self._search(self._goal, min(_BRIEF_STEPS, self._steps))

    def _search_longer(self) -> None:
        if self._restarts is not None:
            self._search(self._goal, min(_SECOND_STEPS, self._steps - self._restarts.steps))

    def _fix_goal(self) -> None:
        self._fix(self._goal)

    def _fit_segments(self) -> None:
        self._plan_segments(self._goal, _FIXING_STEPS)

    def _plan_segments(self, capacity: int, all_steps: int) -> None:
        """Plan by segments. ``all_steps`` is the limit on the steps of all such attempts so far."""
        segments = self._segments
        before = segments.steps
        found = segments.fit(capacity, min(self._steps, all_steps - before, self._budget.left))
        self._budget.left -= segments.steps - before
        self._part.bound = max(self._part.bound, segments.bound)
        if found is not None:
            self._take(found)

    def _place_further(self) -> None:
        _place_part(self._part, self._goal, further=True)

    def _insist(self) -> None:
        self._search(self._goal, _DEMANDED_STEPS)

    def _search(self, capacity: int, most_steps: int) -> None:
        most_steps = min(most_steps, self._budget.left)
        if self._restarts is None or most_steps <= 0:
            return
        before = self._restarts.steps
        result, offsets = self._restarts.fit(capacity, most_steps)
        self._budget.left -= self._restarts.steps - before
        if result == FOUND:
            self._take(offsets)
        elif result == NONE:
            self._part.bound = max(self._part.bound, capacity + 1)

    def _fix(self, capacity: int) -> None:
        """Replan the buffers that end too high. If that fails, place these buffers before all others and repeat."""
        part = self._part
        offsets = part.offsets
        first: list[int] = []
        while min(self._fixing, self._budget.left) > 0:
            fixer = Fixer(part.buffers, offsets, min(self._fixing, self._budget.left))
            failed = fixer.fit(capacity)
            self._fixing -= fixer.steps
            self._budget.left -= fixer.steps
            self._take(fixer.offsets)
            if not failed or not self._turns or any(index in first for index in failed):
                return
            self._turns -= 1
            first = failed + first
            offsets = _place_first(part, first)

    def _improve(self) -> None:
        part = self._part
        problem = Problem(part.buffers)
        order = sorted(range(len(part.buffers)), key=lambda index: part.offsets[index])
        free = [index for index in order if part.buffers[index].pin is None]
        found = improve(problem, free, part.size, self._goal)
        if found is not None:
            self._take(found)

    def _narrow(self) -> None:
        """Search for smaller and smaller plans, by bisection between the goal and the best plan so far."""
        part = self._part
        low = max(self._goal + 1, part.bound)
        all_steps = self._segments.steps + _FIXING_STEPS
        for _ in range(_PROBES):
            if low >= part.size:
                return
            capacity = (low + part.size - 1) // 2
            self._plan_segments(capacity, all_steps)
            if self._restarts is None:
                self._fix(capacity)
            elif part.size > capacity:
                self._search(capacity, self._steps // _PROBES)
            if part.size > capacity:
                low = capacity + 1

    def _take(self, offsets: Sequence[int]) -> None:
        _take_smaller(self._part, list(offsets))


def _place_part(part: Part, goal: int, *, further: bool = False) -> None:
    """Plan a part with its first strategy. If ``further``, try all other strategies until one reaches the goal.

    For a part with many buffers, strips are the first strategy if possible. With few, they are a further one.
    """
    buffers = part.buffers
    first_in_strips = _is_large(part) if not further else len(buffers) <= _MANY_IN_STRIPS
    if first_in_strips and (found := next(Strips(buffers).plans(), None)) is not None:
        part.is_in_strips = not further
        _take_smaller(part, found)
        if part.size <= goal or not further:
            return
    timeline = Timeline(buffers)
    crowds = find_crowds(buffers, timeline)
    free = [index for index, buffer in enumerate(buffers) if buffer.pin is None]
    first = _first_strategy(part)
    # The first strategy has not run yet if strips took its place.
    run_first = [first] if part.is_in_strips or not further else []
    for strategy in [*run_first, *(other for other in STRATEGIES if further and other is not first)]:
        if further and part.steps > PLACING_STEPS:
            break
        order = order_buffers(buffers, free, crowds, strategy.key)
        most_steps = PLACING_STEPS if further else ORDER_STEPS
        offsets, spent = place_in_order(buffers, timeline, order, strategy.fit, most_steps)
        part.steps += spent
        _take_smaller(part, offsets)
        if part.size <= goal:
            break


def _take_smaller(part: Part, offsets: list[int]) -> bool:
    """Store offsets in a part if they are the part's first plan, or smaller than its smallest plan so far.

    Return True if they are stored.
    """
    size = size_of(part.buffers, offsets)
    is_smaller = not part.offsets or size < part.size
    if is_smaller:
        part.offsets, part.size = offsets, size
    return is_smaller


def _is_large(part: Part) -> bool:
    return len(part.buffers) > _MANY_CLASSED


def _first_strategy(part: Part) -> Strategy:
    return STRATEGIES[1 if _is_large(part) else 0]


def _place_first(part: Part, first: Sequence[int]) -> list[int]:
    """Place the buffers ``first``, then all other buffers by the part's first strategy. Return all offsets."""
    buffers = part.buffers
    timeline = Timeline(buffers)
    early = set(first)
    late = [index for index, buffer in enumerate(buffers) if buffer.pin is None and index not in early]
    strategy = _first_strategy(part)
    order = order_buffers(buffers, late, find_crowds(buffers, timeline), strategy.key)
    return place_in_order(buffers, timeline, [*first, *order], strategy.fit, PLACING_STEPS)[0]
