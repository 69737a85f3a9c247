"""Scales of outputs that kernels compute in fixed point."""

from __future__ import annotations

from dataclasses import replace

from etdev.program import model as m
from etdev.program.analysis.fixed_point import output_steps
from etdev.program.analysis.quantized_ends import QuantizedEnd
from program.hand import tensor
from support.files import method, program

PAD = m.Operator("cortex_m::pad", "out")
TO_FLOAT = m.Operator("cortex_m::dequantize_per_tensor", "out")
ABS = m.Operator("aten::abs", "out")
INT8 = replace(tensor(4, at=0), scalar_type=m.ScalarType.CHAR)


def converted(*operators: m.Operator, outputs: tuple[int, ...] = (2,)) -> m.ExecutionPlan:
    """int8 -> int8 -> float32, with the scale 0.25, by the first and the second operator; the absolute value of it."""
    values = [INT8, INT8, tensor(4, at=16), m.Double(0.25), m.Int(0), tensor(4, at=32)]
    calls = [m.KernelCall(0, (0, 1, 1)), m.KernelCall(1, (1, 3, 4, 4, 4, 4, 2, 2)), m.KernelCall(2, (2, 5, 5))]
    return method(values, calls, outputs=outputs, operators=(*operators, ABS))


def test_the_scale_of_the_last_conversion() -> None:
    assert output_steps(program(converted(PAD, TO_FLOAT))) == {("forward", 0): 0.25}
    assert output_steps(program(converted(PAD, TO_FLOAT, outputs=(5, 2)))) == {("forward", 1): 0.25}


def test_a_method_without_kernels_in_fixed_point() -> None:
    portable = m.Operator("quantized_decomposed::dequantize_per_tensor", "out")
    assert output_steps(program(converted(ABS, portable))) == {}
    assert output_steps(program(converted(PAD, portable))) == {("forward", 0): 0.25}


def test_a_quantized_output() -> None:
    end = QuantizedEnd("output", 0, 0.5, -3, -128, 127, m.ScalarType.CHAR)
    forward = converted(PAD, TO_FLOAT, outputs=(1,))
    numbers = {
        name: m.Double(it) if isinstance(it, float) else m.Int(it) for name, it in end.constants("forward").items()
    }
    constants = [replace(method([one], [], inputs=(), outputs=(0,)), name=name) for name, one in numbers.items()]
    assert output_steps(program(forward, *constants)) == {("forward", 0): 0.5}
