"""Quantized inputs and outputs of methods. Constant methods of the program describe them.

Each quantized input or output has five constant methods. They return its scale, its zero point, the smallest and the
largest integer, and the number of its data type. Their names are those of ExecuTorch's ``QuantizeInputs`` and
``QuantizeOutputs`` passes, such as ``forward_input0_scale``. ``dequantize(q) = (q - zero_point) * scale``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from etdev.program import model as m

Side = Literal["input", "output"]
_KEYS = ("scale", "zp", "quant_min", "quant_max", "dtype")


@dataclass(frozen=True, slots=True)
class QuantizedEnd:
    """A quantized input or output of a method."""

    side: Side
    position: int
    """Position among the method's inputs or outputs, from 0."""
    scale: float
    zero_point: int
    quant_min: int
    """Smallest integer that a quantized value may have."""
    quant_max: int
    """Largest integer that a quantized value may have."""
    dtype: m.ScalarType

    def constants(self, method: str) -> dict[str, int | float]:
        """Return the numbers that describe this input or output, by name of the constant method that returns them."""
        values = (self.scale, self.zero_point, self.quant_min, self.quant_max, int(self.dtype))
        return dict(zip(constant_names(method, self.side, self.position), values, strict=True))


def constant_names(method: str, side: Side, position: int) -> tuple[str, ...]:
    """Return the names of the constant methods that describe a quantized input or output of ``method``."""
    return tuple(f"{method}_{side}{position}_{key}" for key in _KEYS)


def quantized_ends(program: m.Program) -> dict[str, tuple[QuantizedEnd, ...]]:
    """Map each method to its quantized inputs and outputs, inputs first. Omit methods that have neither.

    An input or output counts only if all of its constant methods exist and match its data type.
    """
    constants = {plan.name: value for plan in program.execution_plan for value in _constant(plan)}
    found = {plan.name: tuple(_ends(plan, constants)) for plan in program.execution_plan}
    return {method: ends for method, ends in found.items() if ends}


def describing_methods(program: m.Program) -> frozenset[str]:
    """Return the names of the constant methods that describe quantized inputs and outputs."""
    found = quantized_ends(program).items()
    return frozenset(name for method, ends in found for end in ends for name in end.constants(method))


def _constant(plan: m.ExecutionPlan) -> Iterator[int | float]:
    """Yield the number that the method returns if it is a constant method. Yield nothing for any other method."""
    if not plan.inputs and not plan.instructions and len(plan.outputs) == 1:
        match plan.values[plan.outputs[0]]:
            case m.Int(int_val=number):
                yield number
            case m.Double(double_val=value):
                yield value


def _ends(plan: m.ExecutionPlan, constants: Mapping[str, int | float]) -> Iterator[QuantizedEnd]:
    sides: tuple[tuple[Side, Sequence[int]], ...] = (("input", plan.inputs), ("output", plan.outputs))
    for side, values in sides:
        for position, index in enumerate(values):
            value = plan.values[index]
            found = [constants.get(name) for name in constant_names(plan.name, side, position)]
            if not isinstance(value, m.Tensor) or found[-1] != value.scalar_type:
                continue
            scale, *whole = found
            if isinstance(scale, float) and math.isfinite(scale) and all(isinstance(one, int) for one in whole):
                zero_point, low, high, _ = (int(one or 0) for one in whole)
                yield QuantizedEnd(side, position, scale, zero_point, low, high, value.scalar_type)
