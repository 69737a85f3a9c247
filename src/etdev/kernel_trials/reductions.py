"""Cases of reductions, normalizations and other operators that work along dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from etdev.kernel_trials.case import (
    FEW_SHAPES,
    IMAGES,
    LONG,
    SHAPES,
    Case,
    data,
    make_case,
)
from etdev.program.model import ScalarType


def along(argument: str = "dim", **more: Any) -> Callable[[], Iterator[Case]]:
    """Return a function that yields cases of an operator that works along one dimension and keeps the shape.

    ``argument`` is the name of the argument for the dimension, and ``more`` are further arguments.
    """

    def make() -> Iterator[Case]:
        for shape in SHAPES:
            for dim in range(len(shape)):
                yield make_case(shape, {"self": data(shape), argument: dim, **more})
        for shape in FEW_SHAPES:
            yield make_case(shape, {"self": data(shape), argument: -1, **more})

    return make


def reduced(*, listed: bool, second: ScalarType | None = None, **more: Any) -> Callable[[], Iterator[Case]]:
    """Return a function that yields cases of a reduction.

    Each case reduces a dimension of size 1, so that input and output have the same shape. ``listed`` is True if the
    operator takes a list of dimensions. ``second`` is the element type of a second output, and ``more`` are further
    arguments.
    """

    def make() -> Iterator[Case]:
        for shape in ((1,), (7, 1), (1, 33), (64, 1, 5), (3, 1025, 1)):
            dim = shape.index(1)
            extra = (data(shape, second),) if second is not None else ()
            yield make_case(
                shape, {"self": data(shape), "dim": (dim,) if listed else dim, "keepdim": True, **more}, *extra
            )

    return make


def reduced_to_two() -> Iterator[Case]:
    for case in reduced(listed=True, correction=0)():
        yield Case(case.arguments, (case.outputs[0], case.outputs[0]))


def topk() -> Iterator[Case]:
    for shape in SHAPES:
        for dim in range(len(shape)):
            for largest in (True, False):
                given = {"self": data(shape), "k": shape[dim], "dim": dim, "largest": largest, "sorted": True}
                yield make_case(shape, given, data(shape, LONG))


def layer_norm() -> Iterator[Case]:
    for shape in SHAPES:
        for kept in range(len(shape)):
            inner = shape[kept:]
            moments = data((*shape[:kept], *(1 for _ in inner)))
            given = {"input": data(shape), "normalized_shape": inner, "weight": data(inner), "bias": data(inner)}
            yield make_case(shape, {**given, "eps": 1e-5}, moments, moments)
            if shape in FEW_SHAPES:
                yield make_case(shape, {**given, "weight": None, "bias": None, "eps": 1e-5}, moments, moments)


def group_norm() -> Iterator[Case]:
    for shape in ((1, 2), (2, 6, 1), (1, 4, 7), (3, 4, 129), *IMAGES):
        batch, channels, inner = shape[0], shape[1], prod(shape[2:])
        for groups in {1, channels, 2 if channels % 2 == 0 else 1}:
            moments = data((batch, groups))
            given: dict[str, Any] = {"input": data(shape), "bias": None}
            given |= {"weight": data((channels,)), "bias": data((channels,)), "N": batch}
            given |= {"C": channels, "HxW": inner, "group": groups, "eps": 1e-5}
            yield make_case(shape, given, moments, moments)
            yield make_case(shape, {**given, "weight": None, "bias": None}, moments, moments)


def batch_norm(*, running: bool, training: bool | None) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in ((1, 1), (7, 3), (2, 257), (2, 6, 1), (1, 4, 7), (3, 4, 129), *IMAGES):
            channels = (shape[1],)
            given: dict[str, Any] = {"input": data(shape), "weight": data(channels), "bias": data(channels)}
            if running:
                given |= {"running_mean": data(channels), "running_var": data(channels)}
            if training is not None:
                given["training"] = training
            saved = data(channels if training else (0,))
            given |= {"momentum": 0.1, "eps": 1e-5}
            yield make_case(shape, given, saved, saved)
            yield make_case(shape, {**given, "weight": None, "bias": None}, saved, saved)

    return make


def running_batch_norm() -> Iterator[Case]:
    for training in (False, True):
        yield from batch_norm(running=True, training=training)()
