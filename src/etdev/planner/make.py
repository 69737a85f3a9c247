"""Entry point of planning: runs a planner, checks the offsets that the planner returns, and adds a lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from etdev.planner.best import Proven, best
from etdev.planner.bounds import lower_bound
from etdev.planner.check import check_plan, read_offsets
from etdev.planner.extent import arena_size
from etdev.planner.greedy import greedy
from etdev.planner.naive import naive
from etdev.planner.problem import Plan, PlanError, Planner, Problem

PLANNERS: Mapping[str, Planner] = MappingProxyType({"best": best, "greedy": greedy, "naive": naive})
"""The built-in planners, by name."""


def make_plan(problem: Problem, planner: str | Planner = "best", *, name: str | None = None) -> Plan:
    """Plan a problem with a planner of ``PLANNERS`` or with any function, and check the offsets.

    ``name`` is the planner's name in the plan and in messages. For a function, the default is ``module:function``.
    Raises :class:`PlanError` if the offsets are wrong. Errors of the planner itself propagate.
    """
    function, name = _find_planner(planner, name)
    answer: object = function(problem)
    try:
        offsets = read_offsets(problem, answer)
        check_plan(problem, offsets)
    except PlanError as error:
        error.args = (f"planner {name}: {error}",)
        raise
    proven = answer.lower_bound if isinstance(answer, Proven) else 0
    return Plan(offsets, arena_size(problem, offsets), max(lower_bound(problem), proven), name)


def _find_planner(planner: str | Planner, name: str | None) -> tuple[Planner, str]:
    if isinstance(planner, str):
        if planner not in PLANNERS:
            raise PlanError(f"there is no planner {planner!r}; expected {', '.join(PLANNERS)}, or a function")
        return PLANNERS[planner], name or planner
    if not callable(planner):
        raise PlanError(f"a planner must be a name or a function, found {type(planner).__name__}")
    qualified = getattr(planner, "__qualname__", type(planner).__qualname__)
    return planner, name or f"{planner.__module__}:{qualified}"
