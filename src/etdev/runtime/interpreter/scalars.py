"""Operators on numbers, such as sizes and conditions (``executorch_prim``)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TypeAlias

Number: TypeAlias = int | float | bool

FUNCTIONS: dict[str, Callable[..., Number]] = {
    "add.Scalar": operator.add,
    "sub.Scalar": operator.sub,
    "mul.Scalar": operator.mul,
    "floordiv.Scalar": operator.floordiv,
    "floordiv.int": operator.floordiv,
    "truediv.Scalar": operator.truediv,
    "mod.Scalar": operator.mod,
    "mod.int": operator.mod,
    "neg.Scalar": operator.neg,
    "eq.Scalar": operator.eq,
    "ge.Scalar": operator.ge,
    "gt.Scalar": operator.gt,
    "le.Scalar": operator.le,
    "lt.Scalar": operator.lt,
    "ceil.Scalar": math.ceil,
    "round.Scalar": round,
    "trunc.Scalar": math.trunc,
    "sym_float.Scalar": float,
    "sym_int.Scalar": math.trunc,
    "sym_max.Scalar": max,
    "sym_min.Scalar": min,
    "sym_not.Scalar": operator.not_,
    "sym_ite.Scalar": lambda condition, one, other: one if condition else other,
}
"""Maps an operator, without its namespace, to the function that computes it."""
