"""Entry point of planning across banks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from etdev.planner.banks.divide import Division, divide, lower_cost
from etdev.planner.banks.loads import Loads
from etdev.planner.banks.own import BankPlanner, read_places
from etdev.planner.banks.problem import BankedPlan, BankedProblem, BankOverflowError, BanksFullError
from etdev.planner.bounds import lower_bound
from etdev.planner.check import check_plan
from etdev.planner.extent import arena_size
from etdev.planner.make import make_plan
from etdev.planner.problem import Plan, PlanError, Planner, Problem


def plan_banks(problem: BankedProblem, planner: str | Planner = "best", *, name: str | None = None) -> BankedPlan:
    """Divide buffers among banks and plan each bank, such that the traffic costs little.

    After the buffers are divided, ``planner`` plans each bank. If this plan exceeds a bank, the bank gets the offsets
    that the search for a division found. A :class:`BankPlanner` divides the buffers itself. ``name`` is as in
    :func:`~etdev.planner.make_plan`.

    Raises :class:`BanksFullError` if no division was found that fits. Raises :class:`BankOverflowError` if the plan of
    a :class:`BankPlanner` exceeds a bank. Raises :class:`~etdev.planner.PlanError` if the plan of ``planner`` is wrong.
    Errors of the planner itself propagate.
    """
    if isinstance(planner, BankPlanner):
        return _plan_by(planner, problem, name or planner.name)
    division, closest, bound = divide(problem)
    if division is None:
        raise _full(closest)
    plans = tuple(_plan_bank(problem, division, bank, planner, name) for bank in range(len(problem.banks)))
    return _plan(problem, division.loads.division(), plans, bound)


def _plan(problem: BankedProblem, banks: Sequence[int], plans: tuple[Plan, ...], bound: Fraction) -> BankedPlan:
    """Combine the banks of the buffers and the plans of the banks into one plan."""
    offsets = [0] * len(problem.buffers)
    traffic = [0] * len(problem.banks)
    rest = [iter(plan.offsets) for plan in plans]
    for index, bank in enumerate(banks):
        offsets[index] = next(rest[bank])
        traffic[bank] += problem.traffic[index]
    cost = problem.total_cost(banks)
    return BankedPlan(tuple(banks), tuple(offsets), plans, tuple(traffic), cost, min(bound, cost))


def _plan_by(planner: BankPlanner, problem: BankedProblem, name: str) -> BankedPlan:
    """Return the plan of a function that divides the buffers itself. Check the plan."""
    # A function that changes the choices must not change what its answer is checked against.
    answer: object = planner.function(replace(problem, choices=dict(problem.choices)))
    try:
        places = read_places(problem, answer)
        plans = tuple(_checked_bank(problem, places, bank, name) for bank in range(len(problem.banks)))
    except PlanError as error:
        error.args = (f"planner {name}: {error}",)
        raise
    for bank, plan in zip(problem.banks, plans, strict=True):
        if plan.size > bank.size:
            raise BankOverflowError(bank, name, plan.size)
    return _plan(problem, [bank for bank, _ in places], plans, lower_cost(problem))


def _checked_bank(problem: BankedProblem, places: Sequence[tuple[int, int]], bank: int, name: str) -> Plan:
    """Return the plan of one bank. Raise :class:`~etdev.planner.PlanError` if the plan is wrong."""
    indices = [index for index, (other, _) in enumerate(places) if other == bank]
    buffers = Problem(tuple(problem.in_bank(index, bank) for index in indices))
    offsets = tuple(places[index][1] for index in indices)
    what = f"bank {problem.banks[bank].name!r}"
    try:
        check_plan(buffers, offsets)
    except PlanError as error:
        error.args = (f"{what}: {error}",)
        raise
    return Plan(offsets, arena_size(buffers, offsets), lower_bound(buffers), name)


def _plan_bank(problem: BankedProblem, division: Division, bank: int, planner: str | Planner, name: str | None) -> Plan:
    indices = [index for index, other in enumerate(division.loads.division()) if other == bank]
    buffers = Problem(tuple(problem.in_bank(index, bank) for index in indices))
    plan = make_plan(buffers, planner, name=name)
    if plan.size <= problem.banks[bank].size:
        return plan
    known = [division.offsets[bank].get(index, 0) for index in indices]
    return make_plan(buffers, lambda _: known, name="division")


def _full(loads: Loads) -> BanksFullError:
    """Return the error for the division that comes closest to fitting."""
    problem = loads.problem
    used = [bank for bank in range(len(problem.banks)) if any(loads.loads[bank])]
    missing, bank = max((loads.need(bank) - problem.banks[bank].size, bank) for bank in used)
    rank = loads.worst_rank(bank)
    live = sorted(loads.live(bank, rank), key=lambda index: (-problem.buffers[index].size, index))
    instant = max(problem.buffers[index].start for index in live)
    reason = f"lacks {missing} bytes" if missing > 0 else "has enough bytes in total, but not in one piece"
    return BanksFullError(
        f"bank {problem.banks[bank].name!r} {reason}", bank=bank, missing=max(0, missing), instant=instant,
        buffers=tuple(live),
    )  # fmt: skip
