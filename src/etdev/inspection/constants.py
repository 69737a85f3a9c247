"""Constants and initial values of a program.

The description of a constant contains the largest tensor that refers to the constant, and this tensor's first use.
"""

from __future__ import annotations

from etdev.inspection.naming import dtype_name
from etdev.linker.state import state_name
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import instruction_name, tensors
from etdev.program.info import ConstantInfo, ConstantKind


def describe_constants(program: Program) -> tuple[ConstantInfo, ...]:
    """Return the constants and initial values of a program, each once.

    Tensors share a constant if they state the same index in the program's file, or the same name in a data file.
    """
    found: dict[tuple[ConstantKind, int | str], ConstantInfo] = {}
    for plan in program.execution_plan:
        uses = _first_uses(plan)
        for value, tensor in plan.tensors():
            if not (tensor.is_constant or tensor.has_initial_value):
                continue
            item = _constant(plan, value, tensor, uses.get(value))
            key = item.kind, (item.name or "") if item.kind == "external" else item.index
            before = found.get(key)
            if before is None or _rank(item) > _rank(before):
                found[key] = item
    return tuple(found.values())


def _rank(item: ConstantInfo) -> tuple[int, bool]:
    return item.nbytes, item.instruction is not None


def _constant(
    plan: m.ExecutionPlan, value: int, tensor: m.Tensor, use: tuple[int, m.Instruction] | None
) -> ConstantInfo:
    internal: ConstantKind = "initial value" if tensor.has_initial_value else "constant"
    return ConstantInfo(
        name=state_name(plan, (value,)),
        kind="external" if tensor.is_external else internal,
        index=tensor.data_buffer_idx,
        dtype=dtype_name(tensor.scalar_type),
        shape=tensor.sizes,
        nbytes=tensor.nbytes,
        method=plan.name,
        value=value,
        instruction=None if use is None else use[0],
        operator=None if use is None else instruction_name(plan, use[1]),
    )


def _first_uses(plan: m.ExecutionPlan) -> dict[int, tuple[int, m.Instruction]]:
    """Map each tensor to ``(position, instruction)`` of the first instruction with the tensor as an argument."""
    found: dict[int, tuple[int, m.Instruction]] = {}
    for position, call in enumerate(plan.instructions):
        if isinstance(call, m.KernelCall | m.DelegateCall):
            for value in tensors(plan, call.args):
                found.setdefault(value, (position, call))
    return found
