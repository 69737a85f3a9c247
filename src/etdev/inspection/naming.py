"""Names of dtypes and instructions, for messages and reports."""

from __future__ import annotations

from etdev.program import model as m
from etdev.program.analysis.effects import operator_name

_NAMES = {
    m.ScalarType.BYTE: "uint8",
    m.ScalarType.CHAR: "int8",
    m.ScalarType.SHORT: "int16",
    m.ScalarType.INT: "int32",
    m.ScalarType.LONG: "int64",
    m.ScalarType.HALF: "float16",
    m.ScalarType.FLOAT: "float32",
    m.ScalarType.DOUBLE: "float64",
}
"""PyTorch's names for dtypes that have other names in ExecuTorch's schema."""


def dtype_name(scalar_type: m.ScalarType) -> str:
    """Return the name of an element type, such as ``float32``."""
    return _NAMES.get(scalar_type, scalar_type.name.lower())


def instruction_name(plan: m.ExecutionPlan, call: m.Instruction) -> str:
    """Return the name of the operator or delegate that an instruction calls.

    For other instructions, return the kind, such as ``MoveCall``.
    """
    match call:
        case m.KernelCall():
            return operator_name(plan.operators[call.op_index])
        case m.DelegateCall():
            return plan.delegates[call.delegate_index].id
        case _:
            return type(call).__name__
