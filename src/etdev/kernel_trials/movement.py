"""Cases of operators that move or copy elements without changing their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from etdev.kernel_trials.case import (
    FEW_SHAPES,
    SHAPES,
    SIZES,
    SQUARES,
    Case,
    Shape,
    TensorArg,
    data,
    indices,
    make_case,
)


def padded(rank: int, dims: int, argument: str = "padding", **more: Any) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in ((1,) * rank, *((2, *(3 + i for i in range(rank - 2)), n) for n in (4, 7, 33, 65))):
            yield make_case(shape, {"self": data(shape), argument: (0,) * (2 * dims), **more})
            yield make_case(shape, {"self": data(shape), argument: (1, -1, *((0,) * (2 * dims - 2))), **more})

    return make


def moved(argument: str, **more: Any) -> Callable[[], Iterator[Case]]:
    """Return a function that yields cases of an operator that moves elements along a dimension.

    ``argument`` is the name of the argument for the dimension, and ``more`` are further arguments.
    """

    def make() -> Iterator[Case]:
        for shape in SHAPES:
            for dim in range(len(shape)):
                yield make_case(shape, {"self": data(shape), argument: (dim,), **more})

    return make


def permuted() -> Iterator[Case]:
    for n in SQUARES:
        yield make_case((n, n), {"self": data((n, n)), "dims": (1, 0)})
    swaps: tuple[tuple[Shape, Shape], ...] = (
        ((5, 1, 5), (2, 1, 0)),
        ((7, 1, 33), (0, 1, 2)),
        ((2, 33, 33), (0, 2, 1)),
        ((1, 4, 16, 16), (0, 1, 3, 2)),
    )
    for shape, dims in swaps:
        yield make_case(shape, {"self": data(shape), "dims": dims})


def transposed() -> Iterator[Case]:
    for n in SQUARES:
        yield make_case((n, n), {"self": data((n, n)), "dim0": 0, "dim1": 1})


def strided() -> Iterator[Case]:
    for n in SQUARES:
        for stride in ((n, 1), (1, n)):
            given = {"self": data((n, n)), "size": (n, n), "stride": stride, "storage_offset": 0}
            yield make_case((n, n), given)


def lower_triangle() -> Iterator[Case]:
    shapes: tuple[Shape, ...] = (*((n, n) for n in SQUARES), (3, 65), (65, 3), (2, 33, 17))
    for shape in shapes:
        for diagonal in (-1, 0, 1):
            yield make_case(shape, {"self": data(shape), "diagonal": diagonal})


def whole(**more: Callable[[Shape], Any]) -> Callable[[], Iterator[Case]]:
    """Return a function that yields cases of an operator that copies a part of a tensor.

    In the cases, the part is the whole tensor, so that input and output have the same shape. ``more`` maps the name of
    each further argument to a function that takes the shape and returns the argument's value.
    """

    def make() -> Iterator[Case]:
        for shape in (*FEW_SHAPES, (1, 4, 16, 16)):
            yield make_case(shape, {"self": data(shape), **{name: value(shape) for name, value in more.items()}})

    return make


def listed(listed: str) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in FEW_SHAPES:
            yield make_case(shape, {listed: (data(shape),), "dim": 0})

    return make


def index() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        yield make_case(shape, {"self": data(shape), "indices": (indices(shape[0], shape[0]),)})


def index_put() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for rows in {1, shape[0], (shape[0] + 1) // 2}:
            values = data((rows, *shape[1:]))
            given = {"self": data(shape), "indices": (indices(shape[0], rows),), "values": values}
            yield make_case(shape, {**given, "accumulate": False})
            if shape in FEW_SHAPES:
                yield make_case(shape, {**given, "accumulate": True})
        if len(shape) > 1:
            given = {"self": data(shape), "indices": (None, indices(shape[1], shape[1])), "values": data(shape)}
            yield make_case(shape, {**given, "accumulate": False})


def index_select() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for dim, size in enumerate(shape):
            yield make_case(shape, {"self": data(shape), "dim": dim, "index": indices(size, size)})


def gather() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for dim, size in enumerate(shape):
            yield make_case(shape, {"self": data(shape), "dim": dim, "index": indices(size, *shape)})


def scatter(**more: Any) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in SHAPES[1:]:
            for dim, size in enumerate(shape):
                given = {"self": data(shape), "dim": dim, "src": data(shape), **more}
                yield make_case(shape, {**given, "index": indices(size, *shape)})
                if size > 1:
                    half = tuple(size // 2 if i == dim else n for i, n in enumerate(shape))
                    yield make_case(shape, {**given, "index": indices(size, *half)})

    return make


def embedding() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        if len(shape) == 2:
            yield make_case(shape, {"weight": data(shape), "indices": indices(shape[0], shape[0])})


def slice_scatter() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for dim, size in enumerate(shape):
            for start, step in ((0, 1), (size // 2, 1), (0, 2)):
                count = -(-(size - start) // step)
                source = data(count if i == dim else n for i, n in enumerate(shape))
                given = {"self": data(shape), "src": source, "dim": dim, "start": start, "end": size}
                yield make_case(shape, {**given, "step": step})


def select_scatter() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for dim, size in enumerate(shape):
            source = data(n for i, n in enumerate(shape) if i != dim)
            yield make_case(shape, {"self": data(shape), "src": source, "dim": dim, "index": size - 1})


def repeat_interleave() -> Iterator[Case]:
    for n in SIZES:
        repeats = TensorArg((n,), ones=True)
        yield make_case((n,), {"repeats": repeats, "output_size": n})
