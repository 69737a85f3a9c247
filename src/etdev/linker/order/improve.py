"""A better order of many steps: parts of the present order are improved one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from etdev.linker.order.greedy import greedy
from etdev.linker.order.problem import Item, Problem, least_in_use
from etdev.linker.order.search import Effort, Found, search

_MOST_STEPS = 1_000
"""Maximum number of steps in one part."""


def improve(problem: Problem, effort: Effort | None = None) -> Found:
    """Find an order with a lower peak. Searches use up to ``effort``.

    The function divides the present order into parts, and searches each part separately. Parts with the highest peaks
    come first. The search ends at the first part that cannot be improved. The peak of this part is the peak of the
    whole order.
    """
    count = len(problem)
    in_use = problem.in_use(range(count))
    if count < 2:
        return Found(None, exact=True)
    top = max(range(count), key=lambda step: (in_use[step], -step))
    reached = least_in_use(problem, top)
    if reached == in_use[top]:
        return Found(None, exact=True)
    parts = _parts(problem)
    peaks = [max(in_use[start:end]) for start, end in parts]
    order = list(range(count))
    cut = _Cut(problem)
    exact = all(end - start <= _MOST_STEPS for start, end in parts)
    effort = effort or Effort()
    solved: dict[Problem, Found] = {}
    for index in sorted(range(len(parts)), key=lambda index: (-peaks[index], index)):
        start, end = parts[index]
        if peaks[index] <= reached:
            break
        part = cut.part(start, end)
        found = solved.get(part) or search(part, reached, effort)
        solved[part] = found
        exact &= found.exact
        if found.order is None:
            reached = peaks[index]
            break
        reached = max(reached, part.peak(found.order))
        order[start:end] = [start + step for step in found.order]
    # A part with many steps is divided, so steps that belong together may be in different parts.
    best = min((tuple(order), greedy(problem)), key=problem.peak)
    if problem.peak(best) >= in_use[top]:
        return Found(None, exact)
    return Found(best, exact)


def _parts(problem: Problem) -> list[tuple[int, int]]:
    """Return consecutive ranges of steps that can be put in order separately.

    A part ends before and after each cut: a step that all later steps depend on, and that depends on all earlier
    steps. A part with too many steps is divided further.
    """
    count = len(problem)
    ends_before = _lonely(problem.before, range(count))
    starts_after = _lonely(problem.after, range(count - 1, -1, -1))
    cuts = [step for step in range(count) if ends_before[step] and starts_after[step]]
    bounds = sorted({0, count, *cuts, *(step + 1 for step in cuts)})
    parts: list[tuple[int, int]] = []
    for start, end in pairwise(bounds):
        pieces = -(-(end - start) // _MOST_STEPS)
        marks = [start + (end - start) * piece // pieces for piece in range(pieces + 1)]
        parts += pairwise(marks)
    return parts


def _lonely(before: Sequence[Sequence[int]], steps: Sequence[int]) -> list[bool]:
    """Return, for each step, whether it depends on all steps before it in ``steps``, directly or indirectly."""
    found = [False] * len(steps)
    last: set[int] = set()  # Steps on which no other step depends so far.
    for step in steps:
        last.difference_update(before[step])
        last.add(step)
        found[step] = len(last) == 1
    return found


class _Cut:
    """Builder of a separate problem for each part of the present order."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        count = len(problem)
        change = [0] * (count + 2)
        for item in problem.items:
            change[0 if item.before else item.users[0] + 1] += item.size
            change[count + 1 if item.after else item.users[-1] + 1] -= item.size
        self._across = [problem.base] * (count + 1)
        """For each step, the bytes that are in use both before the step and during it."""
        current = problem.base
        for step in range(count + 1):
            current += change[step]
            self._across[step] = current

    def part(self, start: int, end: int) -> Problem:
        """Return the problem for the steps in ``range(start, end)``. Number these steps from 0."""
        problem = self._problem
        used = sorted({index for step in range(start, end) for index in problem.used[step]})
        base = self._across[start]
        items = []
        for index in used:
            item = problem.items[index]
            before, after = item.before or item.users[0] < start, item.after or item.users[-1] >= end
            base -= item.size if before else 0
            users = tuple(step - start for step in item.users if start <= step < end)
            items.append(Item(item.size, users, before, after))
        dependencies = tuple(
            tuple(other - start for other in problem.before[step] if other >= start) for step in range(start, end)
        )
        return Problem(dependencies, tuple(items), base)
