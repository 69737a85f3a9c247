"""Cases of operators that compute each output element from the input elements at the same position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from etdev.kernel_trials.case import (
    BOOL,
    FEW_SHAPES,
    IMAGES,
    SHAPES,
    Case,
    Shape,
    TensorArg,
    broadcast_shapes,
    data,
    make_case,
)


def elementwise_cases(arguments: Sequence[tuple[str, str, bool]]) -> Iterator[Case]:
    tensors = [name for name, kind, _ in arguments if kind in ("Tensor", "Optional[Tensor]")]
    for shape in SHAPES:
        yield make_case(shape, _values(arguments, shape, {name: data(shape) for name in tensors}))
    for shape in FEW_SHAPES:
        full = {name: data(shape) for name in tensors}
        for name in tensors if len(tensors) > 1 else ():
            for smaller in broadcast_shapes(shape):
                others = {other: data(smaller) if other != name else full[name] for other in tensors}
                yield make_case(shape, _values(arguments, shape, others))
        for name, value in _alternatives(arguments, shape):
            yield make_case(shape, {**_values(arguments, shape, full), name: value})
        for first, second in combinations(tensors, 2):
            yield make_case(shape, _values(arguments, shape, full | {second: replace(full[first], same_as=first)}))
    for shape in IMAGES:
        last = replace(data(shape), channels_last=True)
        yield Case(_values(arguments, shape, dict.fromkeys(tensors, last)), (last,))
        for name in tensors if len(tensors) > 1 else ():
            mixed = {other: last if other == name else data(shape) for other in tensors}
            yield Case(_values(arguments, shape, mixed), (last,))


_PLAIN: Mapping[str, Any] = {"number": 3, "int": 0, "float": 0.5, "bool": False, "str": "", "List[int]": (0,)}


def _values(
    arguments: Sequence[tuple[str, str, bool]], shape: Shape, tensors: Mapping[str, TensorArg]
) -> dict[str, Any]:
    plain = {
        name: _PLAIN.get(kind)
        for name, kind, has_default in arguments
        if not has_default and name not in tensors and not kind.startswith("List[Tensor]")
    }
    lists = {name: (data(shape),) for name, kind, _ in arguments if kind == "List[Tensor]"}
    return {**plain, **lists, **tensors}


def _alternatives(arguments: Sequence[tuple[str, str, bool]], shape: Shape) -> Iterator[tuple[str, Any]]:
    for name, kind, has_default in arguments:
        if kind == "number" and not has_default:
            yield from ((name, 1.5), (name, -1))
        elif kind == "bool":
            yield name, True
        elif kind in ("int", "Optional[int]") and name == "dim":
            yield from ((name, dim) for dim in range(1, len(shape)))
        elif kind == "Optional[Tensor]":
            yield name, None


def scalar_range() -> Iterator[Case]:
    for shape in SHAPES:
        yield make_case(shape, {"self": data(shape), "min": -1, "max": 2})
    for shape in FEW_SHAPES:
        yield make_case(shape, {"self": data(shape), "min": None, "max": 1.5})


def clamp() -> Iterator[Case]:
    yield from elementwise_cases((("self", "Tensor", False), ("min", "Tensor", False), ("max", "Tensor", False)))


def rounded_division(other: Callable[[Shape], Any]) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for mode in ("floor", "trunc", None):
            for shape in SHAPES if mode == "floor" else FEW_SHAPES:
                yield make_case(shape, {"self": data(shape), "other": other(shape), "rounding_mode": mode})
        for shape in FEW_SHAPES:
            for smaller in broadcast_shapes(shape):
                yield make_case(shape, {"self": data(shape), "other": other(smaller), "rounding_mode": "floor"})
                yield make_case(shape, {"self": data(smaller), "other": other(shape), "rounding_mode": "floor"})

    return make


def gelu() -> Iterator[Case]:
    for approximate in ("none", "tanh"):
        for shape in SHAPES:
            yield make_case(shape, {"self": data(shape), "approximate": approximate})


def where() -> Iterator[Case]:
    def make(shape: Shape, condition: Shape, first: Shape, second: Shape) -> Case:
        given = {"condition": data(condition, BOOL), "self": data(first), "other": data(second)}
        return make_case(shape, given)

    yield from (make(shape, shape, shape, shape) for shape in SHAPES)
    for shape in FEW_SHAPES:
        twice = {"self": data(shape), "other": TensorArg(shape, same_as="self")}
        yield make_case(shape, {"condition": data(shape, BOOL), **twice})
        for smaller in broadcast_shapes(shape):
            yield make(shape, shape, smaller, smaller)
            yield make(shape, smaller, shape, smaller)
            yield make(shape, smaller, smaller, shape)


def masked_fill() -> Iterator[Case]:
    for shape in SHAPES:
        yield make_case(shape, {"self": data(shape), "mask": data(shape, BOOL), "value": 3})
    for shape in FEW_SHAPES:
        for smaller in broadcast_shapes(shape):
            yield make_case(shape, {"self": data(shape), "mask": data(smaller, BOOL), "value": 3})
            yield make_case(shape, {"self": data(smaller), "mask": data(shape, BOOL), "value": 3})


def masked_scatter() -> Iterator[Case]:
    for shape in SHAPES:
        yield make_case(shape, {"self": data(shape), "mask": data(shape, BOOL), "source": data(shape)})
    for shape in FEW_SHAPES:
        for smaller in broadcast_shapes(shape):
            yield make_case(shape, {"self": data(shape), "mask": data(smaller, BOOL), "source": data(shape)})
            yield make_case(shape, {"self": data(smaller), "mask": data(shape, BOOL), "source": data(shape)})


def fill() -> Iterator[Case]:
    for shape in SHAPES:
        yield from (make_case(shape, {"self": data(shape), "value": data(one)}) for one in ((), (1,)))


def dropout() -> Iterator[Case]:
    for shape in FEW_SHAPES:
        yield make_case(shape, {"input": data(shape), "p": 0.5, "train": False}, data(shape, BOOL))
