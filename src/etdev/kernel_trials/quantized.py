"""Cases of operators on quantized numbers.

The kernels of these operators abort the process if they do not support an element type. Therefore, each case states its
own element types. All numbers in a case are valid for these types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from etdev.kernel_trials.case import (
    BYTE,
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHAPES,
    Case,
    TensorArg,
    data,
    indices,
)


def quantize(**scales: TensorArg | float | int) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in SHAPES:
            given = {"input": data(shape, FLOAT), **scales, **_RANGE, "dtype": int(INT)}
            yield Case(given, (data(shape, INT),))

    return make


def dequantize(**scales: TensorArg | float | int) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in SHAPES:
            given = {"input": data(shape, INT), **scales, **_RANGE, "dtype": int(INT), "out_dtype": int(FLOAT)}
            yield Case(given, (data(shape, FLOAT),))

    return make


_RANGE = {"quant_min": 0, "quant_max": 100}

ONE_SCALE: Mapping[str, Any] = {"scale": 0.1, "zero_point": 3}

TENSOR_SCALE: Mapping[str, Any] = {
    "scale": TensorArg((1,), DOUBLE, ones=True),
    "zero_point": TensorArg((1,), LONG, ones=True),
}


def per_channel(*, dequantize: bool) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        kind, made = (INT, FLOAT) if dequantize else (FLOAT, INT)
        for shape in SHAPES[1:]:
            for axis, size in enumerate(shape):
                scales = TensorArg((size,), FLOAT if dequantize else DOUBLE, ones=True)
                given = {"input": data(shape, kind), "scales": scales, "zero_points": indices(3, size), "axis": axis}
                dtypes = {"dtype": int(INT), "out_dtype": int(FLOAT)}
                yield Case({**given, **_RANGE, **dtypes}, (data(shape, made),))

    return make


def per_token(*, dequantize: bool) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        kind, made = (INT, FLOAT) if dequantize else (FLOAT, INT)
        for shape in SHAPES[1:]:
            rows = (*shape[:-1], 1)
            scales = TensorArg(rows, FLOAT if dequantize else DOUBLE, ones=True)
            given = {"input": data(shape, kind), "scales": scales, "zero_points": indices(3, *rows), **_RANGE}
            yield Case({**given, "dtype": int(INT), "output_dtype": int(FLOAT)}, (data(shape, made),))

    return make


def quantized_add() -> Iterator[Case]:
    ranges = {f"{name}_quant_{end}": bound for name in ("a", "b", "out") for end, bound in (("min", 0), ("max", 100))}
    for kind in (BYTE, CHAR):
        for shape in SHAPES:
            given = {"a": data(shape, kind), "a_scale": 0.1, "a_zero_point": 3, "b": data(shape, kind)}
            given |= {"b_scale": 0.2, "b_zero_point": 5, "out_scale": 0.3, "out_zero_point": 7, **ranges}
            yield Case(given, (data(shape, kind),))
