"""Quantized inputs and outputs, as constant methods of a file describe them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etdev.program import model as m
from etdev.program.analysis.quantized_ends import (
    QuantizedEnd,
    constant_names,
    describing_methods,
    quantized_ends,
)
from program.hand import tensor
from support.files import method, program

END = QuantizedEnd("input", 0, 0.5, -3, -128, 127, m.ScalarType.CHAR)
OUT = QuantizedEnd("output", 1, 0.25, 7, 0, 255, m.ScalarType.BYTE)


def constant(name: str, value: float) -> m.ExecutionPlan:
    """A constant method, as ExecuTorch emits one."""
    number = m.Double(value) if isinstance(value, float) else m.Int(value)
    return replace(method([number], [], inputs=()), name=name, outputs=(0,))


def described(*ends: QuantizedEnd, **changes: float | None) -> m.Program:
    """A program: int8 [4] and float32 [4] -> float32 [4] and uint8 [4], and constants; None leaves a constant out."""
    values = [
        replace(tensor(4, at=0), scalar_type=m.ScalarType.CHAR),
        tensor(4, at=16),
        tensor(4, at=32),
        replace(tensor(4, at=48), scalar_type=m.ScalarType.BYTE),
    ]
    forward = replace(method(values, [], inputs=(0, 1)), outputs=(2, 3))
    constants = {name: value for end in ends for name, value in end.constants("forward").items()} | changes
    plans = [constant(name, value) for name, value in constants.items() if value is not None]
    return replace(program(forward), execution_plan=(forward, *plans))


def test_found() -> None:
    found = described(END, OUT, get_width=32)
    assert quantized_ends(found) == {"forward": (END, OUT)}
    assert describing_methods(found) == {
        *constant_names("forward", "input", 0),
        *constant_names("forward", "output", 1),
    }
    assert quantized_ends(described()) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"forward_input0_scale": None},
        {"forward_input0_zp": None},
        {"forward_input0_dtype": None},
        {"forward_input0_dtype": 2},
        {"forward_input0_scale": 1},
        {"forward_input0_scale": float("nan")},
        {"forward_input0_zp": 0.5},
        {"forward_input0_quant_max": 127.0},
    ],
)
def test_a_description_must_be_complete(changes: dict[str, float | None]) -> None:
    """A program may have a constant of such a name for another reason."""
    assert quantized_ends(described(END, OUT, **changes)) == {"forward": (OUT,)}


def test_a_float_tensor_is_not_quantized() -> None:
    assert quantized_ends(described(replace(END, position=1))) == {}


def test_the_names_are_those_of_executorch() -> None:
    passes = pytest.importorskip("executorch.exir.passes.quantize_io_pass", reason="needs the extra `build`")
    keys = ("scale", "zp", "quant_min", "quant_max", "dtype")
    wanted = tuple(passes.get_config_method_name("encode", "output", 2, key) for key in keys)
    assert constant_names("encode", "output", 2) == wanted
