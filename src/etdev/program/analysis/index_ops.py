"""Operators that return indices, and so another integer if two values are equal or rounded differently."""

from __future__ import annotations

from etdev.program import model as m

_OPS = frozenset({"argmax", "argmin", "argsort", "multinomial", "searchsorted", "bucketize", "sort", "topk"})
_WITH_DIM = frozenset({"max", "min", "median", "mode", "kthvalue"})
"""Operators that return indices only if they reduce one dimension."""


def index_ops(program: m.Program) -> dict[str, tuple[str, ...]]:
    """Map each method that computes indices outside of delegates to the names of these operators."""
    found = {}
    for plan in program.execution_plan:
        names = {_name(operator) for operator in plan.operators if _returns_index(operator)}
        if names:
            found[plan.name] = tuple(sorted(names))
    return found


def _returns_index(operator: m.Operator) -> bool:
    name = _name(operator)
    return name in _OPS or (name in _WITH_DIM and operator.overload.startswith(("dim", "values")))


def _name(operator: m.Operator) -> str:
    return operator.name.rpartition("::")[2]
