"""Outputs that a program's kernels compute in integers, with fixed-point scales.

Such a kernel multiplies its sum by a 31-bit integer, rounds, shifts right, and rounds again. The quantized model in
PyTorch rounds once, in floats. So the two results may differ by one step if the sum is near the middle between two
integers.
"""

from __future__ import annotations

from collections.abc import Iterator

from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.analysis.quantized_ends import quantized_ends

_NAMESPACE = "cortex_m::"
_TO_FLOAT = frozenset(
    {
        "cortex_m::dequantize_per_tensor.out",
        "quantized_decomposed::dequantize_per_tensor.out",
    }
)
_SCALE = 1
"""Position of the scale among the arguments of :data:`_TO_FLOAT`."""


def output_steps(program: m.Program) -> dict[tuple[str, int], float]:
    """Map each output to the scale of its integers. An output is a pair: name of the method, position.

    Leave out methods without fixed-point kernels. Also leave out outputs that a kernel computes in floats.
    """
    ends = quantized_ends(program)
    found = {}
    for plan in program.execution_plan:
        if any(operator.name.startswith(_NAMESPACE) for operator in plan.operators):
            scales = dict(_scales(plan))
            for position, index in enumerate(plan.outputs):
                if index in scales:
                    found[plan.name, position] = scales[index]
            for end in ends.get(plan.name, ()):
                if end.side == "output":
                    found[plan.name, end.position] = end.scale
    return found


def _scales(plan: m.ExecutionPlan) -> Iterator[tuple[int, float]]:
    """Yield pairs: a tensor that an instruction converts from integers to floats, and the scale."""
    for call in plan.instructions:
        if isinstance(call, m.KernelCall) and operator_name(plan.operators[call.op_index]) in _TO_FLOAT:
            scale = plan.values[call.args[_SCALE]]
            if isinstance(scale, m.Double):
                yield call.args[-1], scale.double_val
