"""Pairs of corresponding instructions, guessed from the two programs alone.

A link adds, removes and replaces only instructions that move bytes or set sizes. All other instructions stay, in the
same order. A wrong guess cannot make a proof wrong; it can only make the proof fail.
"""

from __future__ import annotations

from collections.abc import Mapping

from etdev.program import model as m
from etdev.validator.semantics import operators as ops
from etdev.validator.semantics.movement import RULES
from etdev.validator.validate import Correspondence

_MAY_GO = frozenset({*RULES, ops.EMPTY, ops.ET_VIEW})


def guess_correspondences(
    before: m.Program, after: m.Program, delegate_inputs: Mapping[str, Mapping[int, int]]
) -> dict[str, Correspondence]:
    """Map the name of each method to a guess of its corresponding instructions.

    The guess pairs the instructions that a link never removes, in order. A method is omitted if the names of these
    instructions differ between the two programs.

    ``delegate_inputs`` has one map for each method. It maps the position of a delegate call in ``before`` to the call's
    number of inputs.
    """
    found = {}
    for one, other in zip(before.execution_plan, after.execution_plan, strict=False):
        mine, theirs = _staying(one), _staying(other)
        if one.name == other.name and [name for _, name in mine] == [name for _, name in theirs]:
            moved = {here: there for (here, _), (there, _) in zip(mine, theirs, strict=True)}
            found[one.name] = Correspondence(moved, delegate_inputs.get(one.name, {}))
    return found


def _staying(plan: m.ExecutionPlan) -> list[tuple[int, str]]:
    """Return the position and the name of each instruction that a link never removes."""
    calls = plan.instructions
    named = [(position, _name(plan, call)) for position, call in enumerate(calls)]
    return [(position, name) for position, name in named if name not in _MAY_GO]


def _name(plan: m.ExecutionPlan, call: m.Instruction) -> str:
    match call:
        case m.KernelCall():
            operator = plan.operators[call.op_index]
            return ops.same_function(f"{operator.name}.{operator.overload}" if operator.overload else operator.name)
        case m.DelegateCall():
            return plan.delegates[call.delegate_index].id
        case _:
            return type(call).__name__
