"""Copies between host and devices, as instructions of a method."""

from __future__ import annotations

from collections import defaultdict

from etdev.linker.edit import with_operator
from etdev.program import model as m

Insertions = defaultdict[int, list[tuple[str, int, int]]]
"""Maps a position to the copies to insert there, each as ``(operator name, source value, target value)``."""


def copy_between(plan: m.ExecutionPlan, operator: str, source: int, target: int) -> list[tuple[str, int, int]]:
    """Return the copy from value ``source`` to value ``target``, as a list. The list is empty if no copy is needed.

    An empty static tensor needs no copy. Exactly one of the two values must belong to the original method. The other
    one must be a value that a pass has added.
    """
    tensor = plan.values[min(source, target)]  # Added values have higher numbers than all original ones.
    assert isinstance(tensor, m.Tensor)
    return [(operator, source, target)] if tensor.nbytes or is_dynamic(tensor) else []


def is_dynamic(value: m.Value) -> bool:
    """Return whether a value is a tensor with dynamic sizes."""
    return isinstance(value, m.Tensor) and not value.is_static


def copy_instructions(
    plan: m.ExecutionPlan, before: Insertions, after: Insertions
) -> tuple[m.ExecutionPlan, dict[int, list[m.Instruction]], dict[int, list[m.Instruction]]]:
    """Return the method with the copy operators added, and two maps from positions to kernel calls.

    The first map has the calls to insert before a position. The second map has the calls to insert after it.
    """
    indices = {}
    for name in sorted({name for copies in (*before.values(), *after.values()) for name, _, _ in copies}):
        plan, indices[name] = with_operator(plan, name, "out")

    def calls(insertions: Insertions) -> dict[int, list[m.Instruction]]:
        return {
            position: [m.KernelCall(indices[name], (source, target, target)) for name, source, target in copies]
            for position, copies in insertions.items()
        }

    return plan, calls(before), calls(after)
