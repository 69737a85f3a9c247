"""A quick way to order many steps: the next step always leaves the fewest bytes in use."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from etdev.linker.order.problem import Problem


def greedy(problem: Problem) -> tuple[int, ...]:
    """Return a valid order. The peak of this order may be higher than the peak of the present order.

    Of all steps that can run, the next one has the lowest net change of the bytes in use. The time is about linear in
    the number of accesses to items. A step's change depends only on the items that the step accesses.
    """
    choice = _Choice(problem)
    waiting = [len(steps) for steps in problem.before]
    heap = [(*choice.cost(step), step) for step, count in enumerate(waiting) if not count]
    heapify(heap)
    order: list[int] = []
    while heap:
        *cost, step = heappop(heap)
        if choice.done[step] or tuple(cost) != choice.cost(step):
            continue  # The cost has changed, and the heap has another entry with the new one.
        order.append(step)
        changed = choice.run(step)
        for other in problem.after[step]:
            waiting[other] -= 1
            if not waiting[other]:
                changed.add(other)
        for other in changed:
            if not waiting[other]:
                heappush(heap, (*choice.cost(other), other))
    return tuple(order)


class _Choice:
    """Costs of the remaining steps."""

    def __init__(self, problem: Problem) -> None:
        self.done = [False] * len(problem)
        self._items, self._used = problem.items, problem.used
        self._in_use = [item.before for item in problem.items]
        self._left = [len(item.users) for item in problem.items]
        """For each item, the number of its users that have not run."""

    def cost(self, step: int) -> tuple[int, int]:
        """Return two numbers for a step: the net change of the bytes in use, and the bytes that come into use."""
        added = freed = 0
        for index in self._used[step]:
            item = self._items[index]
            added += 0 if self._in_use[index] else item.size
            freed += item.size if self._left[index] == 1 and not item.after else 0
        return added - freed, added

    def run(self, step: int) -> set[int]:
        """Run a step. Return the remaining steps whose costs change."""
        self.done[step] = True
        changed: set[int] = set()
        for index in self._used[step]:
            self._left[index] -= 1
            if not self._in_use[index] or self._left[index] == 1:
                self._in_use[index] = True
                changed.update(other for other in self._items[index].users if not self.done[other])
        return changed
