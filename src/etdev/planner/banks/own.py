"""User-defined planners that also divide the buffers among the banks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from etdev.planner.banks.problem import Bank, BankedProblem
from etdev.planner.check import read_integer, read_items
from etdev.planner.problem import PlanError, Problem, label


class BankPlanner:
    """A planner that takes a whole problem with banks.

    It is also a :data:`~etdev.planner.Planner`. A problem without banks becomes a problem with one bank that has room
    for any plan.
    """

    def __init__(self, function: Callable[[BankedProblem], Sequence[tuple[int, int]]]) -> None:
        self.function = function
        """Function that returns, for each buffer, the index of a bank and the offset in the bank in bytes."""
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        """Name of the function, such as ``planners:mine``."""
        function = self.function
        return f"{function.__module__}:{getattr(function, '__qualname__', type(function).__qualname__)}"

    def __call__(self, problem: Problem) -> Sequence[int]:
        """Plan a problem without banks. Return the offsets.

        Raises :class:`~etdev.planner.PlanError` if the function does not return a bank and an offset for each buffer.
        """
        size = sum(buffer.size + buffer.alignment for buffer in problem.buffers)
        banked = BankedProblem((Bank("memory", size),), problem.buffers, (0,) * len(problem.buffers))
        answer: object = self.function(banked)
        try:
            return [offset for _, offset in read_places(banked, answer)]
        except PlanError as error:
            error.args = (f"planner {self.name}: {error}",)
            raise


def bank_planner(function: Callable[[BankedProblem], Sequence[tuple[int, int]]]) -> BankPlanner:
    """Declare that a planner takes a whole problem with banks. Use this function as a decorator.

    ``function`` takes a :class:`BankedProblem`. It returns a pair for each buffer of the problem: the index of the
    buffer's bank in ``problem.banks``, and the offset in that bank in bytes.
    """
    return BankPlanner(function)


def read_places(problem: BankedProblem, answer: object) -> list[tuple[int, int]]:
    """Return the bank and the offset of each buffer, as a planner returned them.

    Raises :class:`~etdev.planner.PlanError` if the answer is not one pair of integers per buffer, or if a buffer is
    in a bank that must not hold it.
    """
    items = read_items(answer, "pairs (bank, offset)")
    if len(items) != len(problem.buffers):
        wanted = len(problem.buffers)
        raise PlanError(f"expected a pair (bank, offset) for each of {wanted} buffers, found {len(items)} items")
    return [_read_place(problem, index, item) for index, item in enumerate(items)]


def _read_place(problem: BankedProblem, index: int, item: object) -> tuple[int, int]:
    name = label(index, problem.buffers[index])
    try:
        bank, offset = map(read_integer, item)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        bank = offset = None
    if bank is None or offset is None:
        raise PlanError(f"{name} has the place {item!r}; expected a pair of integers (bank, offset)")
    if not 0 <= bank < len(problem.banks):
        raise PlanError(f"{name} is in bank {bank}; expected a number from 0 to {len(problem.banks) - 1}")
    if bank not in problem.allowed(index):
        names = " or ".join(repr(problem.banks[other].name) for other in problem.allowed(index))
        raise PlanError(f"{name} is in bank {problem.banks[bank].name!r}, but must be in {names}")
    return bank, offset
