"""The problem of finding an order with a low peak: steps, their dependencies, and the bytes that they access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Item:
    """Bytes that are in use from the first step that accesses them to the last such step."""

    size: int
    """Size in bytes."""
    users: tuple[int, ...]
    """Steps that access the bytes, in ascending order. There is at least one step."""
    before: bool = False
    """True if the bytes are also in use before the first step of the problem."""
    after: bool = False
    """True if the bytes are also in use after the last step of the problem."""


@dataclass(frozen=True)
class Problem:
    """Steps to put in order. They are numbered in the present order, which satisfies all dependencies."""

    before: tuple[tuple[int, ...], ...]
    """For each step, the steps that must run before it. They have lower numbers than the step."""
    items: tuple[Item, ...]
    base: int = 0
    """Bytes that are in use during all steps."""

    def __len__(self) -> int:
        return len(self.before)

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the steps that must run after it."""
        found: list[list[int]] = [[] for _ in self.before]
        for step, earlier in enumerate(self.before):
            for other in earlier:
                found[other].append(step)
        return tuple(map(tuple, found))

    @cached_property
    def used(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the indices of the items that it accesses."""
        found: list[list[int]] = [[] for _ in self.before]
        for index, item in enumerate(self.items):
            for step in item.users:
                found[step].append(index)
        return tuple(map(tuple, found))

    def in_use(self, order: Sequence[int]) -> list[int]:
        """Return the bytes in use during each step of an order."""
        rank = [0] * len(order)
        for position, step in enumerate(order):
            rank[step] = position
        change = [0] * (len(order) + 1)
        for item in self.items:
            ranks = [rank[step] for step in item.users]
            change[0 if item.before else min(ranks)] += item.size
            if not item.after:
                change[max(ranks) + 1] -= item.size
        found, current = [], self.base
        for delta in change[:-1]:
            current += delta
            found.append(current)
        return found

    def peak(self, order: Sequence[int]) -> int:
        """Return the largest number of bytes in use during a step of an order."""
        return max(self.in_use(order), default=self.base)

    def is_valid(self, order: Sequence[int]) -> bool:
        """Return whether an order has each step once, after the steps that must run before it."""
        rank = {step: position for position, step in enumerate(order)}
        return sorted(order) == list(range(len(self))) and all(
            rank[other] < rank[step] for step, earlier in enumerate(self.before) for other in earlier
        )


def least_in_use(problem: Problem, step: int) -> int:
    """Return a lower bound of the bytes in use during a step, valid for every order. Takes O(steps + dependencies).

    An item is in use during the step if the step accesses the item. Otherwise, it is in use if two conditions hold. The
    item is in use before the first step, or has a user that must run before this step. And the item is in use after the
    last step, or has a user that must run after this step.
    """
    earlier, later = _reached(problem.before, step), _reached(problem.after, step)
    used = set(problem.used[step])
    total = problem.base
    for index, item in enumerate(problem.items):
        if index in used:
            total += item.size
        else:
            starts = item.before or any(user in earlier for user in item.users)
            if starts and (item.after or any(user in later for user in item.users)):
                total += item.size
    return total


def _reached(edges: Sequence[Sequence[int]], step: int) -> set[int]:
    found: set[int] = set()
    waiting = [step]
    while waiting:
        for other in edges[waiting.pop()]:
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def lower_bound(problem: Problem, tries: int = 64) -> int:
    """Return a lower bound of the peak, valid for every order.

    Only the ``tries`` steps with the most bytes in use in the present order are considered.
    """
    found = problem.base + max(
        sum(item.size for item in problem.items if item.before), sum(item.size for item in problem.items if item.after)
    )
    in_use = problem.in_use(range(len(problem)))
    for step in sorted(range(len(problem)), key=lambda step: (-in_use[step], step))[:tries]:
        found = max(found, least_in_use(problem, step))
    return found
