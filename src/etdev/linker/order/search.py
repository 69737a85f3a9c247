"""Search for an order of steps with the lowest peak.

A state is a set of executed steps. The exact search visits states in ascending order of their peaks. If there are too
many states, a beam search follows. For each number of executed steps, it continues a limited number of states. Further
depth-first searches then look for an order with a peak below a limit. Each of these searches halves the gap between two
numbers: the lowest peak found so far, and the highest limit that no order has met so far.

One rule keeps the number of states small. A step runs immediately if it neither raises the peak nor increases the
number of bytes in use. A later position of the step is never better, because the step's operands would stay in use
until then.

The result depends on the problem alone, never on time or on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from etdev.linker.order.greedy import greedy
from etdev.linker.order.problem import Problem

_SHARE = 4
"""Divisor of the remaining effort. The quotient is the limit for the exact search, and later for the beam search."""
_LIMIT_SHARE = 10
"""Divisor of the remaining effort. The quotient is the limit for each depth-first search."""
_GAP = 200
"""Divisor of the lowest peak so far. The quotient is the gap in bytes at which depth-first searches end.

The gap is the distance from that peak to the lowest peak that the searches did not exclude.
"""
_BEAM_WIDTH = 64
"""Maximum number of states that the beam search continues, for each number of executed steps."""


@dataclass(slots=True)
class Effort:
    """Limit on the work of searches. The unit is the evaluation of one step, which takes a few microseconds."""

    left: int = 600_000


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a search."""

    order: tuple[int, ...] | None
    """Order with a lower peak than the present order, or None if the search found no such order."""
    exact: bool
    """True if no valid order has a lower peak than ``order``, or than the present order if ``order`` is None."""


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    done: int
    """Set of executed steps, as bits."""
    ready: int
    """Set of steps that can run next, as bits."""
    count: int
    live: int
    """Bytes in use after the executed steps."""
    peak: int
    """Largest number of bytes in use so far, or the bound of the search if the bound is larger."""
    last: tuple[int, ...]
    """Steps executed since ``earlier``, in order."""
    earlier: _State | None

    def order(self) -> tuple[int, ...]:
        """Return all executed steps in order."""
        parts = []
        state: _State | None = self
        while state is not None:
            parts.append(state.last)
            state = state.earlier
        return tuple(step for part in reversed(parts) for step in part)


def search(problem: Problem, bound: int, effort: Effort) -> Found:
    """Find an order with a lower peak than the present one.

    The search first takes a greedy order, and then looks for orders with a lower peak. It stops when the peak is at
    most ``bound`` bytes. Orders with a peak below ``bound`` may exist. The search reduces ``effort``. If no effort is
    left, the search tries only the greedy order.
    """
    limit = problem.peak(range(len(problem)))
    if limit <= bound:
        return Found(None, exact=True)
    first = greedy(problem)
    quick = first if problem.peak(first) < limit else None
    limit = min(limit, problem.peak(first))
    if limit <= bound:
        return Found(quick, exact=True)
    moves = _Moves(problem, limit, effort)
    found = _exact(moves, bound, effort.left - effort.left // _SHARE)
    if found is not None:
        return Found(quick if found.order is None else found.order, exact=True)
    order = _beam(moves, bound, effort.left - effort.left // _SHARE) or quick
    return _below_limits(problem, bound, order, effort)


def _below_limits(problem: Problem, bound: int, order: tuple[int, ...] | None, effort: Effort) -> Found:
    """Find an order with a lower peak than ``order``, or than the present order if ``order`` is None."""
    best = problem.peak(range(len(problem)) if order is None else order)
    low, exact = bound, True
    while best - low > best // _GAP and effort.left > 0:
        limit = (low + best) // 2
        found = _in_depth(_Moves(problem, limit + 1, effort), limit, effort.left - effort.left // _LIMIT_SHARE)
        if found.order is not None:
            order, best = found.order, problem.peak(found.order)
        else:
            low, exact = limit + 1, exact and found.exact
    return Found(order, exact and best <= low)


class _Moves:
    """Transitions between states. Transitions with ``limit`` or more bytes in use are left out."""

    def __init__(self, problem: Problem, limit: int, effort: Effort) -> None:
        self.count, self.limit, self.effort = len(problem), limit, effort
        self._before = [_bits(steps) for steps in problem.before]
        self._after = problem.after
        self._live = problem.base + sum(item.size for item in problem.items if item.before)
        items = [(item.size, _bits(item.users), item.before, item.after) for item in problem.items]
        self._used = [[items[index] for index in used] for used in problem.used]

    def start(self, bound: int) -> _State | None:
        """Return the state before all steps; None if this state already needs ``limit`` bytes."""
        ready = _bits(step for step, before in enumerate(self._before) if not before)
        state = _State(0, ready, 0, self._live, max(bound, self._live), (), None)
        return self._settled(state) if self._live < self.limit else None

    def of(self, state: _State) -> Iterator[_State]:
        """For each step that can run next, yield the state after it and after the steps that then run immediately."""
        for step in _steps(state.ready):
            peak, live = self._use(state.done, state.live, step)
            if peak < self.limit:
                yield self._settled(self._after_step(state, step, max(peak, state.peak), live))

    def _use(self, done: int, live: int, step: int) -> tuple[int, int]:
        """Return the bytes in use during a step, and after it."""
        self.effort.left -= 1
        freed = 0
        left = ~(done | 1 << step)
        for size, users, before, after in self._used[step]:
            if not before and not users & done:
                live += size
            if not after and not users & left:
                freed += size
        return live, live - freed

    def _after_step(self, state: _State, step: int, peak: int, live: int) -> _State:
        done = state.done | 1 << step
        return _State(done, self._ready(state.ready, done, step), state.count + 1, live, peak, (step,), state)

    def _ready(self, ready: int, done: int, step: int) -> int:
        ready &= ~(1 << step)
        for other in self._after[step]:
            if not self._before[other] & ~done:
                ready |= 1 << other
        return ready

    def _settled(self, state: _State) -> _State:
        """Execute all steps that raise neither the peak nor the bytes in use afterwards. Return the resulting state."""
        done, ready, live = state.done, state.ready, state.live
        more: list[int] = []
        changed = True
        while changed:
            changed = False
            for step in _steps(ready):
                peak, then = self._use(done, live, step)
                if peak <= state.peak and then <= live:
                    done |= 1 << step
                    ready = self._ready(ready, done, step)
                    live = then
                    more.append(step)
                    changed = True
        if not more:
            return state
        return _State(done, ready, state.count + len(more), live, state.peak, (*state.last, *more), state.earlier)


def _exact(moves: _Moves, bound: int, left: int) -> Found | None:
    """Search states in ascending order of their peaks. Return None when at most ``left`` of the effort remains."""
    start = moves.start(bound)
    if start is None:
        return Found(None, exact=True)
    heap: list[tuple[int, int, int, int, _State]] = [(start.peak, -start.count, start.live, 0, start)]
    known = {start.done: start.peak}
    number = 0
    while moves.effort.left > left:
        if not heap:
            return Found(None, exact=True)
        *_, state = heappop(heap)
        if state.count == moves.count:
            return Found(state.order(), exact=True)
        if known[state.done] < state.peak:
            continue
        for found in moves.of(state):
            if found.peak < known.get(found.done, moves.limit):
                known[found.done] = found.peak
                number += 1
                heappush(heap, (found.peak, -found.count, found.live, number, found))
    return None


def _in_depth(moves: _Moves, limit: int, left: int) -> Found:
    """Find an order with a peak of at most ``limit``. Stop when at most ``left`` of the effort remains."""
    start = moves.start(limit)
    heap = [] if start is None else [(-start.count, start.live, 0, start)]
    known = set() if start is None else {start.done}
    number = 0
    while heap and moves.effort.left > left:
        *_, state = heappop(heap)
        if state.count == moves.count:
            return Found(state.order(), exact=True)
        for found in moves.of(state):
            if found.done not in known:
                known.add(found.done)
                number += 1
                heappush(heap, (-found.count, found.live, number, found))
    return Found(None, exact=not heap)


def _beam(moves: _Moves, bound: int, left: int) -> tuple[int, ...] | None:
    """Return the best order that a beam search finds, or None. Stop when about ``left`` of the effort remains."""
    start = moves.start(bound)
    levels: list[dict[int, _State]] = [{} for _ in range(moves.count + 1)]
    if start is not None:
        levels[start.count][start.done] = start
    for number, level in enumerate(levels[:-1]):
        share = (moves.effort.left - left) // (moves.count - number)
        until = moves.effort.left - share
        states = sorted(level.values(), key=lambda state: (state.peak, state.live))[:_BEAM_WIDTH]
        level.clear()
        for state in states:
            for found in moves.of(state):
                other = levels[found.count].get(found.done)
                if other is None or found.peak < other.peak:
                    levels[found.count][found.done] = found
            if moves.effort.left <= until:
                break
        if moves.effort.left <= 0:
            return None
    ends = levels[-1].values()
    return min(ends, key=lambda state: state.peak).order() if ends else None


def _bits(steps: Iterator[int] | tuple[int, ...]) -> int:
    found = 0
    for step in steps:
        found |= 1 << step
    return found


def _steps(bits: int) -> Iterator[int]:
    """Yield the numbers of the set bits, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
