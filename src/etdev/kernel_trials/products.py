"""Cases of matrix products, convolutions, poolings and resizing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

from etdev.kernel_trials.case import (
    CHAR,
    IMAGES,
    SQUARES,
    Case,
    TensorArg,
    data,
    indices,
    make_case,
)


def squares(**tensors: int) -> Callable[[], Iterator[Case]]:
    """Return a function that yields cases of a matrix product in which all matrices are square.

    ``tensors`` maps the name of each tensor argument to its rank.
    """

    def make() -> Iterator[Case]:
        for n in SQUARES:
            shape = (2, n, n) if 3 in tensors.values() else (n, n)
            yield make_case(shape, {name: data(shape if rank > 1 else (n,)) for name, rank in tensors.items()})

    return make


def scaled_squares() -> Iterator[Case]:
    for case in squares(self=2, mat1=2, mat2=2)():
        yield case
        yield Case({**case.arguments, "beta": 0.5, "alpha": 2}, case.outputs)
        yield Case({**case.arguments, "beta": 0, "alpha": 1}, case.outputs)


def mixed_squares(first: str = "input") -> Iterator[Case]:
    for n in SQUARES:
        given = {first: data((n, n)), "weight": data((n, n), CHAR), "weight_scales": data((n,))}
        yield make_case((n, n), {**given, "weight_zero_points": None})


def distances() -> Iterator[Case]:
    for n in SQUARES:
        yield make_case((n, n), {"x1": data((n, n)), "x2": data((n, n)), "p": 2.0, "compute_mode": None})


def convolution() -> Iterator[Case]:
    for shape in (*IMAGES, (3, 3, 3, 3), (8, 8, 3, 3)):  # In the last two, the weight has the output's shape.
        channels = shape[1]
        for size, groups in ((1, 1), (3, 1), (1, channels), (3, channels)):
            pad = size // 2
            given: dict[str, Any] = {"input": data(shape), "bias": None}
            given |= {"weight": data((channels, channels // groups, size, size))}
            given |= {"stride": (1, 1), "padding": (pad, pad), "dilation": (1, 1), "transposed": False}
            yield make_case(shape, {**given, "output_padding": (0, 0), "groups": groups})


def convolution_backward() -> Iterator[Case]:
    for case in convolution():
        given, shape = dict(case.arguments), case.outputs[0].shape
        given |= {"grad_output": data(shape), "bias_sizes": (shape[1],), "output_mask": (True, True, True)}
        yield make_case(shape, given, given["weight"], data((shape[1],)))


def pool(*more: TensorArg, **given: Any) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in IMAGES:
            pool = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "ceil_mode": False, **given}
            yield make_case(shape, {"self": data(shape), **pool}, *(replace(item, shape=shape) for item in more))

    return make


def pool_backward() -> Iterator[Case]:
    for shape in IMAGES:
        given: dict[str, Any] = {
            "grad_output": data(shape),
            "self": data(shape),
            "indices": indices(prod(shape[2:]), *shape),
        }
        given |= {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "ceil_mode": False}
        yield make_case(shape, given)


def resized(argument: str, **more: Any) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in IMAGES:
            yield make_case(shape, {argument: data(shape), "output_size": shape[2:], **more})

    return make


def grid_sampler() -> Iterator[Case]:
    for shape in IMAGES:
        grid = data((shape[0], *shape[2:], 2))
        given = {"input": data(shape), "grid": grid, "interpolation_mode": 0, "padding_mode": 0}
        yield make_case(shape, {**given, "align_corners": False})
