"""Memory planning: a planner takes buffers with lifetimes, and returns their offsets in one arena.

This package imports no other part of etdev. :mod:`etdev.planner.problem` defines the input and the result.
"""

from etdev.planner.bounds import lower_bound
from etdev.planner.check import check_plan
from etdev.planner.make import PLANNERS, make_plan
from etdev.planner.problem import (
    Buffer,
    CollisionError,
    OffsetError,
    Plan,
    PlanError,
    Planner,
    Problem,
    ProblemError,
)

__all__ = [
    "PLANNERS",
    "Buffer",
    "CollisionError",
    "OffsetError",
    "Plan",
    "PlanError",
    "Planner",
    "Problem",
    "ProblemError",
    "check_plan",
    "lower_bound",
    "make_plan",
]
