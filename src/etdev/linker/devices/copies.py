"""Copies between host and devices, as instructions of a method."""

from __future__ import annotations

from collections import defaultdict

from etdev.linker.edit import with_operator
from etdev.program import model as m

Insertions = defaultdict[int, list[tuple[str, int, int]]]
"""Position → operator, source and target of each copy there."""


def copied(plan: m.ExecutionPlan, operator: str, source: int, target: int) -> list[tuple[str, int, int]]:
    """Return the copy from ``source`` to ``target``, one of which was added to the method; none for an empty tensor."""
    tensor = plan.values[min(source, target)]  # The original tensor.
    assert isinstance(tensor, m.Tensor)
    return [(operator, source, target)] if tensor.nbytes or is_dynamic(tensor) else []


def is_dynamic(value: m.Value) -> bool:
    """Return whether a value is a tensor whose sizes change."""
    return isinstance(value, m.Tensor) and value.shape_dynamism is not m.TensorShapeDynamism.STATIC


def with_copies(
    plan: m.ExecutionPlan, before: Insertions, behind: Insertions
) -> tuple[m.ExecutionPlan, dict[int, list[m.Instruction]], dict[int, list[m.Instruction]]]:
    """Return the method with the operators that the copies need, and the copies as instructions."""
    indices = {}
    for name in sorted({name for copies in (*before.values(), *behind.values()) for name, _, _ in copies}):
        plan, indices[name] = with_operator(plan, name, "out")

    def calls(insertions: Insertions) -> dict[int, list[m.Instruction]]:
        return {
            position: [m.KernelCall(indices[name], (source, target, target)) for name, source, target in copies]
            for position, copies in insertions.items()
        }

    return plan, calls(before), calls(behind)
