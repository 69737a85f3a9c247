"""Reasons why an output shares bytes with an operand, or has bytes of its own."""

from __future__ import annotations

from collections.abc import Iterable

from etdev.pipeline.results.result import MethodResult
from etdev.program import model as m
from etdev.program.analysis.effects import outputs, tensors
from etdev.program.info import OutputInPlace


def reasons(plan: m.ExecutionPlan, inplace: Iterable[OutputInPlace], built: MethodResult | None) -> dict[int, str]:
    """Map the value index of each output to the reason why the output is or is not in place. Omit unknown reasons.

    The reasons come from the file (``inplace``) and from the build's report (``built``).
    """
    found = {} if built is None else {**_copies(plan, built), **_own_bytes(plan, built)}
    for item in inplace:
        found[item.output] = f"in place: written over value {item.operand}, which is not needed any more"
    return found


def _own_bytes(plan: m.ExecutionPlan, built: MethodResult) -> dict[int, str]:
    """Map value indices of outputs to the reasons why the outputs have bytes of their own.

    Include only outputs that the link did not place in the bytes of an operand.
    """
    calls = plan.instructions
    found: dict[int, str] = {}
    for item in built.inplace_decisions:
        position = built.renumbered.get(item.instruction)
        if position is None or item.argument is not None or position >= len(calls):
            continue
        written = _outputs(plan, calls[position])
        if item.output < len(written):
            found[written[item.output]] = f"not in place: {item.reason}"
    return found


def _copies(plan: m.ExecutionPlan, built: MethodResult) -> dict[int, str]:
    """Map the output of each remaining copy, as a value index, to the reason why the link kept the copy."""
    calls = plan.instructions
    found: dict[int, str] = {}
    for item in built.copy_decisions:
        position = built.renumbered.get(item.instruction)
        if position is None or position >= len(calls) or not item.reason:
            continue
        what = "a copy that remains" if item.action == "kept" else "a copy that remains in part"
        for value in _outputs(plan, calls[position]):
            found[value] = f"{what}: {item.reason}"
    return found


def _outputs(plan: m.ExecutionPlan, call: m.Instruction) -> tuple[int, ...]:
    """Return the value indices of a kernel call's output tensors.

    These are the tensors that occur twice in the arguments. If there are none, the output is the last argument.
    """
    if not isinstance(call, m.KernelCall):
        return ()
    return outputs(plan, call.args) or tensors(plan, call.args[-1:])
