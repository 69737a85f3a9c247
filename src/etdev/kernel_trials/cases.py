"""Arguments for trials that find out whether a kernel may write over one of its inputs.

A kernel that reads an element after it wrote to that place may be right by luck: for one row, for sizes that its
vectors divide, up to the first block of its cache tiling. So the cases cover every size from 1 to beyond all vectors,
sizes around powers of two, several ranks and rows, and every dimension that an operator can work along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Any, TypeAlias

from etdev.program.model import ScalarType

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorArg:
    """A tensor argument to be generated for a kernel."""

    shape: Shape
    dtype: ScalarType | None = None
    """Element type; None for the type under trial."""
    below: int | None = None
    """Exclusive upper bound of index values, which start at 0 and are distinct if possible; None for other data."""
    ones: bool = False
    channels_last: bool = False
    same_as: str | None = None
    """Name of another argument whose tensor is passed for this one too."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call: its arguments by the names of the operator's schema, and the outputs that it makes."""

    arguments: Mapping[str, Any]
    """Tensors, numbers, strings, None, and lists of these. Missing arguments have the schema's default."""
    outputs: tuple[TensorArg, ...]

    def __str__(self) -> str:
        """Return ``[64, 33], dim 1``: the shape of the first output, and the numbers that matter."""
        shape = f"[{', '.join(map(str, self.outputs[0].shape))}]"
        shown = [f"{name} {value}" for name, value in self.arguments.items() if name in ("dim", "dims", "alpha")]
        order = ["channels last"] if self.outputs[0].channels_last else []
        return ", ".join([shape, *shown, *order])


SIZES = (*range(1, 71), 127, 128, 129, 255, 256, 257, 1000, 1023, 1024, 1025, 4096, 100_003)
"""Sizes of one dimension: all up to beyond four AVX-512 vectors, and those around kernels' block sizes."""
_ROWS = (1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 256, 257, 1023, 1025)
SHAPES: tuple[Shape, ...] = (
    (),
    *((n,) for n in SIZES),
    *((3, n) for n in _ROWS),
    *((n, 3) for n in _ROWS),
    *((n, n) for n in (1, 2, 4, 16, 33, 64, 65, 128)),
    *((1, 1, 1), (2, 16, 16), (2, 64, 64), (3, 4, 5), (2, 3, 65), (64, 1, 33)),
    *((1, 2, 3, 4), (2, 8, 7, 7), (1, 4, 16, 16), (3, 4, 1, 1), (2, 3, 2, 2, 3)),
)
_SOME: tuple[Shape, ...] = ((1,), (7,), (16,), (33,), (129,), (1025,), (3, 7), (64, 33), (33, 33), (2, 3, 8, 8))
_SQUARES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129)
_IMAGES: tuple[Shape, ...] = ((1, 1, 1, 1), (2, 8, 7, 7), (1, 4, 16, 16), (3, 4, 1, 1), (1, 3, 33, 65), (2, 2, 64, 64))

BOOL, BYTE, CHAR, INT, LONG = ScalarType.BOOL, ScalarType.BYTE, ScalarType.CHAR, ScalarType.INT, ScalarType.LONG
FLOAT, DOUBLE = ScalarType.FLOAT, ScalarType.DOUBLE


def cases(operator: str, arguments: Sequence[tuple[str, str, bool]], outputs: int = 1) -> tuple[Case, ...]:
    """Return the cases to try an operator with.

    ``arguments`` has the name and type of each argument, and whether it has a default. ``outputs`` is the number of
    outputs. Operators that need more than tensors of the output's shape have cases of their own. For all others, every
    tensor has the shape of the output or is broadcast to it.
    """
    short = operator.partition("::")[2].partition(".")[0]
    own = _CASES.get(operator) or _CASES.get(short)
    found = own() if own else _any_operator(arguments)
    return tuple(case if own else replace(case, outputs=case.outputs * outputs) for case in found)


def _any_operator(arguments: Sequence[tuple[str, str, bool]]) -> Iterator[Case]:
    tensors = [name for name, kind, _ in arguments if kind in ("Tensor", "Optional[Tensor]")]
    for shape in SHAPES:
        yield _case(shape, _values(arguments, shape, {name: data(shape) for name in tensors}))
    for shape in _SOME:
        full = {name: data(shape) for name in tensors}
        for name in tensors if len(tensors) > 1 else ():
            for smaller in _broadcast(shape):
                others = {other: data(smaller) if other != name else full[name] for other in tensors}
                yield _case(shape, _values(arguments, shape, others))
        for name, value in _alternatives(arguments, shape):
            yield _case(shape, {**_values(arguments, shape, full), name: value})
        for first, second in combinations(tensors, 2):
            yield _case(shape, _values(arguments, shape, full | {second: replace(full[first], same_as=first)}))
    for shape in _IMAGES:
        last = replace(data(shape), channels_last=True)
        yield Case(_values(arguments, shape, dict.fromkeys(tensors, last)), (last,))
        for name in tensors if len(tensors) > 1 else ():
            mixed = {other: last if other == name else data(shape) for other in tensors}
            yield Case(_values(arguments, shape, mixed), (last,))


def _broadcast(shape: Shape) -> Iterator[Shape]:
    yield from ((), (1,), shape[-1:])
    if len(shape) > 1:
        yield (*shape[:-1], 1)


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


def data(shape: Iterable[int], dtype: ScalarType | None = None) -> TensorArg:
    """Return a tensor of numbers of any size and sign, except 0."""
    return TensorArg(tuple(shape), dtype)


def indices(below: int, *shape: int) -> TensorArg:
    """Return a tensor of positions in a dimension of size ``below``."""
    return TensorArg(shape, LONG, below=below)


def _case(shape: Shape, arguments: Mapping[str, Any], *more: TensorArg) -> Case:
    return Case(arguments, (data(shape), *more))


# Cases of single operators, in the order of the table below.


def _scalar_range() -> Iterator[Case]:
    for shape in SHAPES:
        yield _case(shape, {"self": data(shape), "min": -1, "max": 2})
    for shape in _SOME:
        yield _case(shape, {"self": data(shape), "min": None, "max": 1.5})


def _clamp() -> Iterator[Case]:
    yield from _any_operator((("self", "Tensor", False), ("min", "Tensor", False), ("max", "Tensor", False)))


def _rounded_division(other: Callable[[Shape], Any]) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for mode in ("floor", "trunc", None):
            for shape in SHAPES if mode == "floor" else _SOME:
                yield _case(shape, {"self": data(shape), "other": other(shape), "rounding_mode": mode})
        for shape in _SOME:
            for smaller in _broadcast(shape):
                yield _case(shape, {"self": data(shape), "other": other(smaller), "rounding_mode": "floor"})
                yield _case(shape, {"self": data(smaller), "other": other(shape), "rounding_mode": "floor"})

    return make


def _gelu() -> Iterator[Case]:
    for approximate in ("none", "tanh"):
        for shape in SHAPES:
            yield _case(shape, {"self": data(shape), "approximate": approximate})


def _where() -> Iterator[Case]:
    def make(shape: Shape, condition: Shape, first: Shape, second: Shape) -> Case:
        given = {"condition": data(condition, BOOL), "self": data(first), "other": data(second)}
        return _case(shape, given)

    yield from (make(shape, shape, shape, shape) for shape in SHAPES)
    for shape in _SOME:
        twice = {"self": data(shape), "other": TensorArg(shape, same_as="self")}
        yield _case(shape, {"condition": data(shape, BOOL), **twice})
        for smaller in _broadcast(shape):
            yield make(shape, shape, smaller, smaller)
            yield make(shape, smaller, shape, smaller)
            yield make(shape, smaller, smaller, shape)


def _masked_fill() -> Iterator[Case]:
    for shape in SHAPES:
        yield _case(shape, {"self": data(shape), "mask": data(shape, BOOL), "value": 3})
    for shape in _SOME:
        for smaller in _broadcast(shape):
            yield _case(shape, {"self": data(shape), "mask": data(smaller, BOOL), "value": 3})
            yield _case(shape, {"self": data(smaller), "mask": data(shape, BOOL), "value": 3})


def _masked_scatter() -> Iterator[Case]:
    for shape in SHAPES:
        yield _case(shape, {"self": data(shape), "mask": data(shape, BOOL), "source": data(shape)})
    for shape in _SOME:
        for smaller in _broadcast(shape):
            yield _case(shape, {"self": data(shape), "mask": data(smaller, BOOL), "source": data(shape)})
            yield _case(shape, {"self": data(smaller), "mask": data(shape, BOOL), "source": data(shape)})


def _along(argument: str = "dim", **more: Any) -> Callable[[], Iterator[Case]]:
    """Return cases of an operator that works along any one dimension and keeps the shape."""

    def make() -> Iterator[Case]:
        for shape in SHAPES:
            for dim in range(len(shape)):
                yield _case(shape, {"self": data(shape), argument: dim, **more})
        for shape in _SOME:
            yield _case(shape, {"self": data(shape), argument: -1, **more})

    return make


def _reduced(*, listed: bool, second: ScalarType | None = None, **more: Any) -> Callable[[], Iterator[Case]]:
    """Return cases of a reduction, which keeps the shape only if the dimension has size 1."""

    def make() -> Iterator[Case]:
        for shape in ((1,), (7, 1), (1, 33), (64, 1, 5), (3, 1025, 1)):
            dim = shape.index(1)
            extra = (data(shape, second),) if second is not None else ()
            yield _case(shape, {"self": data(shape), "dim": (dim,) if listed else dim, "keepdim": True, **more}, *extra)

    return make


def _reduced_to_two() -> Iterator[Case]:
    for case in _reduced(listed=True, correction=0)():
        yield Case(case.arguments, (case.outputs[0], case.outputs[0]))


def _fill() -> Iterator[Case]:
    for shape in SHAPES:
        yield from (_case(shape, {"self": data(shape), "value": data(one)}) for one in ((), (1,)))


def _top() -> Iterator[Case]:
    for shape in SHAPES:
        for dim in range(len(shape)):
            for largest in (True, False):
                given = {"self": data(shape), "k": shape[dim], "dim": dim, "largest": largest, "sorted": True}
                yield _case(shape, given, data(shape, LONG))


def _layer_norm() -> Iterator[Case]:
    for shape in SHAPES:
        for kept in range(len(shape)):
            inner = shape[kept:]
            moments = data((*shape[:kept], *(1 for _ in inner)))
            given = {"input": data(shape), "normalized_shape": inner, "weight": data(inner), "bias": data(inner)}
            yield _case(shape, {**given, "eps": 1e-5}, moments, moments)
            if shape in _SOME:
                yield _case(shape, {**given, "weight": None, "bias": None, "eps": 1e-5}, moments, moments)


def _group_norm() -> Iterator[Case]:
    for shape in ((1, 2), (2, 6, 1), (1, 4, 7), (3, 4, 129), *_IMAGES):
        batch, channels, inner = shape[0], shape[1], prod(shape[2:])
        for groups in {1, channels, 2 if channels % 2 == 0 else 1}:
            moments = data((batch, groups))
            given: dict[str, Any] = {"input": data(shape), "bias": None}
            given |= {"weight": data((channels,)), "bias": data((channels,)), "N": batch}
            given |= {"C": channels, "HxW": inner, "group": groups, "eps": 1e-5}
            yield _case(shape, given, moments, moments)
            yield _case(shape, {**given, "weight": None, "bias": None}, moments, moments)


def _batch_norm(*, running: bool, training: bool | None) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in ((1, 1), (7, 3), (2, 257), (2, 6, 1), (1, 4, 7), (3, 4, 129), *_IMAGES):
            channels = (shape[1],)
            given: dict[str, Any] = {"input": data(shape), "weight": data(channels), "bias": data(channels)}
            if running:
                given |= {"running_mean": data(channels), "running_var": data(channels)}
            if training is not None:
                given["training"] = training
            saved = data(channels if training else (0,))
            given |= {"momentum": 0.1, "eps": 1e-5}
            yield _case(shape, given, saved, saved)
            yield _case(shape, {**given, "weight": None, "bias": None}, saved, saved)

    return make


def _running_batch_norm() -> Iterator[Case]:
    for training in (False, True):
        yield from _batch_norm(running=True, training=training)()


def _dropout() -> Iterator[Case]:
    for shape in _SOME:
        yield _case(shape, {"input": data(shape), "p": 0.5, "train": False}, data(shape, BOOL))


def _squares(**tensors: int) -> Callable[[], Iterator[Case]]:
    """Return cases of a product of square matrices; each number is the rank of that tensor."""

    def make() -> Iterator[Case]:
        for n in _SQUARES:
            shape = (2, n, n) if 3 in tensors.values() else (n, n)
            yield _case(shape, {name: data(shape if rank > 1 else (n,)) for name, rank in tensors.items()})

    return make


def _scaled_squares() -> Iterator[Case]:
    for case in _squares(self=2, mat1=2, mat2=2)():
        yield case
        yield Case({**case.arguments, "beta": 0.5, "alpha": 2}, case.outputs)
        yield Case({**case.arguments, "beta": 0, "alpha": 1}, case.outputs)


def _mixed_squares(first: str = "input") -> Iterator[Case]:
    for n in _SQUARES:
        given = {first: data((n, n)), "weight": data((n, n), CHAR), "weight_scales": data((n,))}
        yield _case((n, n), {**given, "weight_zero_points": None})


def _distances() -> Iterator[Case]:
    for n in _SQUARES:
        yield _case((n, n), {"x1": data((n, n)), "x2": data((n, n)), "p": 2.0, "compute_mode": None})


def _convolution() -> Iterator[Case]:
    for shape in (*_IMAGES, (3, 3, 3, 3), (8, 8, 3, 3)):  # In the last two, the weight has the output's shape.
        channels = shape[1]
        for size, groups in ((1, 1), (3, 1), (1, channels), (3, channels)):
            pad = size // 2
            given: dict[str, Any] = {"input": data(shape), "bias": None}
            given |= {"weight": data((channels, channels // groups, size, size))}
            given |= {"stride": (1, 1), "padding": (pad, pad), "dilation": (1, 1), "transposed": False}
            yield _case(shape, {**given, "output_padding": (0, 0), "groups": groups})


def _convolution_backward() -> Iterator[Case]:
    for case in _convolution():
        given, shape = dict(case.arguments), case.outputs[0].shape
        given |= {"grad_output": data(shape), "bias_sizes": (shape[1],), "output_mask": (True, True, True)}
        yield _case(shape, given, given["weight"], data((shape[1],)))


def _pool(*more: TensorArg, **given: Any) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in _IMAGES:
            pool = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "ceil_mode": False, **given}
            yield _case(shape, {"self": data(shape), **pool}, *(replace(item, shape=shape) for item in more))

    return make


def _pool_backward() -> Iterator[Case]:
    for shape in _IMAGES:
        given: dict[str, Any] = {
            "grad_output": data(shape),
            "self": data(shape),
            "indices": indices(prod(shape[2:]), *shape),
        }
        given |= {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "ceil_mode": False}
        yield _case(shape, given)


def _resized(argument: str, **more: Any) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in _IMAGES:
            yield _case(shape, {argument: data(shape), "output_size": shape[2:], **more})

    return make


def _grid_sampler() -> Iterator[Case]:
    for shape in _IMAGES:
        grid = data((shape[0], *shape[2:], 2))
        given = {"input": data(shape), "grid": grid, "interpolation_mode": 0, "padding_mode": 0}
        yield _case(shape, {**given, "align_corners": False})


def _padded(rank: int, dims: int, argument: str = "padding", **more: Any) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in ((1,) * rank, *((2, *(3 + i for i in range(rank - 2)), n) for n in (4, 7, 33, 65))):
            yield _case(shape, {"self": data(shape), argument: (0,) * (2 * dims), **more})
            yield _case(shape, {"self": data(shape), argument: (1, -1, *((0,) * (2 * dims - 2))), **more})

    return make


def _moved(argument: str, **more: Any) -> Callable[[], Iterator[Case]]:
    """Return cases of an operator that moves elements along each dimension."""

    def make() -> Iterator[Case]:
        for shape in SHAPES:
            for dim in range(len(shape)):
                yield _case(shape, {"self": data(shape), argument: (dim,), **more})

    return make


def _permuted() -> Iterator[Case]:
    for n in _SQUARES:
        yield _case((n, n), {"self": data((n, n)), "dims": (1, 0)})
    swaps: tuple[tuple[Shape, Shape], ...] = (
        ((5, 1, 5), (2, 1, 0)),
        ((7, 1, 33), (0, 1, 2)),
        ((2, 33, 33), (0, 2, 1)),
        ((1, 4, 16, 16), (0, 1, 3, 2)),
    )
    for shape, dims in swaps:
        yield _case(shape, {"self": data(shape), "dims": dims})


def _transposed() -> Iterator[Case]:
    for n in _SQUARES:
        yield _case((n, n), {"self": data((n, n)), "dim0": 0, "dim1": 1})


def _strided() -> Iterator[Case]:
    for n in _SQUARES:
        for stride in ((n, 1), (1, n)):
            given = {"self": data((n, n)), "size": (n, n), "stride": stride, "storage_offset": 0}
            yield _case((n, n), given)


def _lower_triangle() -> Iterator[Case]:
    shapes: tuple[Shape, ...] = (*((n, n) for n in _SQUARES), (3, 65), (65, 3), (2, 33, 17))
    for shape in shapes:
        for diagonal in (-1, 0, 1):
            yield _case(shape, {"self": data(shape), "diagonal": diagonal})


def _whole(**more: Callable[[Shape], Any]) -> Callable[[], Iterator[Case]]:
    """Return cases of an operator that copies a part, in which the part is the whole tensor."""

    def make() -> Iterator[Case]:
        for shape in (*_SOME, (1, 4, 16, 16)):
            yield _case(shape, {"self": data(shape), **{name: value(shape) for name, value in more.items()}})

    return make


def _listed(listed: str) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in _SOME:
            yield _case(shape, {listed: (data(shape),), "dim": 0})

    return make


def _index() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        yield _case(shape, {"self": data(shape), "indices": (indices(shape[0], shape[0]),)})


def _index_put() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for rows in {1, shape[0], (shape[0] + 1) // 2}:
            values = data((rows, *shape[1:]))
            given = {"self": data(shape), "indices": (indices(shape[0], rows),), "values": values}
            yield _case(shape, {**given, "accumulate": False})
            if shape in _SOME:
                yield _case(shape, {**given, "accumulate": True})
        if len(shape) > 1:
            given = {"self": data(shape), "indices": (None, indices(shape[1], shape[1])), "values": data(shape)}
            yield _case(shape, {**given, "accumulate": False})


def _index_select() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for dim, size in enumerate(shape):
            yield _case(shape, {"self": data(shape), "dim": dim, "index": indices(size, size)})


def _gather() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for dim, size in enumerate(shape):
            yield _case(shape, {"self": data(shape), "dim": dim, "index": indices(size, *shape)})


def _scatter(**more: Any) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in SHAPES[1:]:
            for dim, size in enumerate(shape):
                given = {"self": data(shape), "dim": dim, "src": data(shape), **more}
                yield _case(shape, {**given, "index": indices(size, *shape)})
                if size > 1:
                    half = tuple(size // 2 if i == dim else n for i, n in enumerate(shape))
                    yield _case(shape, {**given, "index": indices(size, *half)})

    return make


def _embedding() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        if len(shape) == 2:
            yield _case(shape, {"weight": data(shape), "indices": indices(shape[0], shape[0])})


def _slice_scatter() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for dim, size in enumerate(shape):
            for start, step in ((0, 1), (size // 2, 1), (0, 2)):
                count = -(-(size - start) // step)
                source = data(count if i == dim else n for i, n in enumerate(shape))
                given = {"self": data(shape), "src": source, "dim": dim, "start": start, "end": size}
                yield _case(shape, {**given, "step": step})


def _select_scatter() -> Iterator[Case]:
    for shape in SHAPES[1:]:
        for dim, size in enumerate(shape):
            source = data(n for i, n in enumerate(shape) if i != dim)
            yield _case(shape, {"self": data(shape), "src": source, "dim": dim, "index": size - 1})


def _repeat_interleave() -> Iterator[Case]:
    for n in SIZES:
        repeats = TensorArg((n,), ones=True)
        yield _case((n,), {"repeats": repeats, "output_size": n})


# The kernels for quantized numbers abort the process on an unsupported element type. So each case states its own types,
# and ranges that every type has.


def _quantize(**scales: TensorArg | float | int) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in SHAPES:
            given = {"input": data(shape, FLOAT), **scales, **_RANGE, "dtype": int(INT)}
            yield Case(given, (data(shape, INT),))

    return make


def _dequantize(**scales: TensorArg | float | int) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        for shape in SHAPES:
            given = {"input": data(shape, INT), **scales, **_RANGE, "dtype": int(INT), "out_dtype": int(FLOAT)}
            yield Case(given, (data(shape, FLOAT),))

    return make


_RANGE = {"quant_min": 0, "quant_max": 100}
_ONE_SCALE: Mapping[str, Any] = {"scale": 0.1, "zero_point": 3}
_TENSOR_SCALE: Mapping[str, Any] = {
    "scale": TensorArg((1,), DOUBLE, ones=True),
    "zero_point": TensorArg((1,), LONG, ones=True),
}


def _per_channel(*, dequantize: bool) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        kind, made = (INT, FLOAT) if dequantize else (FLOAT, INT)
        for shape in SHAPES[1:]:
            for axis, size in enumerate(shape):
                scales = TensorArg((size,), FLOAT if dequantize else DOUBLE, ones=True)
                given = {"input": data(shape, kind), "scales": scales, "zero_points": indices(3, size), "axis": axis}
                dtypes = {"dtype": int(INT), "out_dtype": int(FLOAT)}
                yield Case({**given, **_RANGE, **dtypes}, (data(shape, made),))

    return make


def _per_token(*, dequantize: bool) -> Callable[[], Iterator[Case]]:
    def make() -> Iterator[Case]:
        kind, made = (INT, FLOAT) if dequantize else (FLOAT, INT)
        for shape in SHAPES[1:]:
            rows = (*shape[:-1], 1)
            scales = TensorArg(rows, FLOAT if dequantize else DOUBLE, ones=True)
            given = {"input": data(shape, kind), "scales": scales, "zero_points": indices(3, *rows), **_RANGE}
            yield Case({**given, "dtype": int(INT), "output_dtype": int(FLOAT)}, (data(shape, made),))

    return make


def _quantized_add() -> Iterator[Case]:
    ranges = {f"{name}_quant_{end}": bound for name in ("a", "b", "out") for end, bound in (("min", 0), ("max", 100))}
    for kind in (BYTE, CHAR):
        for shape in SHAPES:
            given = {"a": data(shape, kind), "a_scale": 0.1, "a_zero_point": 3, "b": data(shape, kind)}
            given |= {"b_scale": 0.2, "b_zero_point": 5, "out_scale": 0.3, "out_zero_point": 7, **ranges}
            yield Case(given, (data(shape, kind),))


_CASES: Mapping[str, Callable[[], Iterable[Case]]] = {
    "aten::clamp.out": _scalar_range,
    "aten::clamp.Tensor_out": _clamp,
    "aten::div.out_mode": _rounded_division(data),
    "aten::div.Scalar_mode_out": _rounded_division(lambda shape: 3),
    "gelu": _gelu,
    "where": _where,
    "masked_fill": _masked_fill,
    "masked_scatter": _masked_scatter,
    "_softmax": _along(half_to_float=False),
    "_log_softmax": _along(half_to_float=False),
    "cumsum": _along(),
    "amax": _reduced(listed=True),
    "amin": _reduced(listed=True),
    "aten::any.out": _reduced(listed=False),
    "aten::any.dims_out": _reduced(listed=True),
    "argmax": _reduced(listed=False),
    "argmin": _reduced(listed=False),
    "aten::max.dim_max": _reduced(listed=False, second=LONG),
    "aten::min.dim_min": _reduced(listed=False, second=LONG),
    "aten::mean.out": _reduced(listed=True),
    "sum": _reduced(listed=True),
    "aten::prod.int_out": _reduced(listed=False),
    "aten::var.out": _reduced(listed=True, unbiased=False),
    "aten::var.correction_out": _reduced(listed=True, correction=0),
    "var_mean": _reduced_to_two,
    "aten::fill.Tensor_out": _fill,
    "topk": _top,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_native_batch_norm_legit_no_training": _batch_norm(running=True, training=None),
    "aten::_native_batch_norm_legit.out": _running_batch_norm,
    "aten::_native_batch_norm_legit.no_stats_out": _batch_norm(running=False, training=True),
    "native_dropout": _dropout,
    "mm": _squares(self=2, mat2=2),
    "bmm": _squares(self=3, mat2=3),
    "addmm": _scaled_squares,
    "linear": _squares(input=2, weight=2, bias=1),
    "mixed_mm": _mixed_squares,
    "mixed_linear": _mixed_squares,
    "_cdist_forward": _distances,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "avg_pool2d": _pool(count_include_pad=True, divisor_override=None),
    "max_pool2d_with_indices": _pool(data((), LONG), dilation=(1, 1)),
    "max_pool2d_with_indices_backward": _pool_backward,
    "_adaptive_avg_pool2d": _resized("self"),
    "upsample_bilinear2d": _resized("input", align_corners=False, scale_factors=None),
    "upsample_nearest2d": _resized("input", scale_factors=None),
    "_upsample_bilinear2d_aa": _resized("self", align_corners=False),
    "grid_sampler_2d": _grid_sampler,
    "constant_pad_nd": _padded(2, 1, "pad", value=0),
    "reflection_pad1d": _padded(3, 1),
    "reflection_pad2d": _padded(4, 2),
    "reflection_pad3d": _padded(5, 3),
    "replication_pad1d": _padded(3, 1),
    "replication_pad2d": _padded(4, 2),
    "replication_pad3d": _padded(5, 3),
    "flip": _moved("dims"),
    "roll": _moved("dims", shifts=(1,)),
    "permute_copy": _permuted,
    "transpose_copy": _transposed,
    "as_strided_copy": _strided,
    "tril": _lower_triangle,
    "view_copy": _whole(size=lambda shape: shape),
    "expand_copy": _whole(size=lambda shape: shape),
    "repeat": _whole(repeats=lambda shape: (1,) * len(shape)),
    "narrow_copy": _whole(dim=lambda shape: 0, start=lambda shape: 0, length=lambda shape: shape[0]),
    "slice_copy": _whole(dim=lambda shape: 0, start=lambda shape: 0, end=lambda shape: shape[0]),
    "aten::squeeze_copy.dim_out": _whole(dim=lambda shape: len(shape) - 1),
    "aten::squeeze_copy.dims_out": _whole(dim=lambda shape: (len(shape) - 1,)),
    "cat": _listed("tensors"),
    "stack": _listed("tensors"),
    "index": _index,
    "index_put": _index_put,
    "index_select": _index_select,
    "gather": _gather,
    "aten::scatter.src_out": _scatter(),
    "aten::scatter.value_out": _scatter(value=3),
    "scatter_add": _scatter(),
    "embedding": _embedding,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "repeat_interleave": _repeat_interleave,
    "quantized_decomposed::quantize_per_tensor.out": _quantize(**_ONE_SCALE),
    "quantized_decomposed::quantize_per_tensor.Tensor_out": _quantize(**_TENSOR_SCALE),
    "quantize_per_channel": _per_channel(dequantize=False),
    "quantize_per_token": _per_token(dequantize=False),
    "quantized_decomposed::dequantize_per_tensor.out": _dequantize(**_ONE_SCALE),
    "quantized_decomposed::dequantize_per_tensor.Tensor_out": _dequantize(**_TENSOR_SCALE),
    "dequantize_per_channel": _per_channel(dequantize=True),
    "dequantize_per_token": _per_token(dequantize=True),
    "quantized_decomposed::add.out": _quantized_add,
}
"""Cases by operator, or by its name without namespace and overload."""
