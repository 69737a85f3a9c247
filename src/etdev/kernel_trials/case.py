"""Cases of trials. A case is one call of a kernel. Its tensors are filled with numbers when the trial runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from etdev.program.model import ScalarType

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorArg:
    """A tensor argument whose content is generated when a trial runs."""

    shape: Shape
    dtype: ScalarType | None = None
    """Element type. If None, the trial tries several element types."""
    below: int | None = None
    """Exclusive upper bound of the elements if the elements are indices; None for other elements.

    Indices start at 0 and are distinct if possible.
    """
    ones: bool = False
    channels_last: bool = False
    same_as: str | None = None
    """Name of another argument, if both arguments are the same tensor; otherwise None."""


@dataclass(frozen=True, slots=True)
class Case:
    """A call of a kernel: its arguments and its outputs."""

    arguments: Mapping[str, Any]
    """Maps an argument's name in the operator's schema to a value: a tensor, number, string, None, or a list of these.

    An argument that is missing here has the default value from the schema.
    """
    outputs: tuple[TensorArg, ...]

    def __str__(self) -> str:
        """Return a text such as ``[64, 33], dim 1``: the shape of the first output, and some arguments."""
        shape = f"[{', '.join(map(str, self.outputs[0].shape))}]"
        shown = [f"{name} {value}" for name, value in self.arguments.items() if name in ("dim", "dims", "alpha")]
        order = ["channels last"] if self.outputs[0].channels_last else []
        return ", ".join([shape, *shown, *order])


SIZES = (*range(1, 71), 127, 128, 129, 255, 256, 257, 1000, 1023, 1024, 1025, 4096, 100_003)
"""Sizes to try for one dimension.

The list contains every size up to 70, which is more than four AVX-512 vectors of float32. It also contains sizes near
the block sizes of kernels.
"""

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

FEW_SHAPES: tuple[Shape, ...] = ((1,), (7,), (16,), (33,), (129,), (1025,), (3, 7), (64, 33), (33, 33), (2, 3, 8, 8))

SQUARES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129)

IMAGES: tuple[Shape, ...] = ((1, 1, 1, 1), (2, 8, 7, 7), (1, 4, 16, 16), (3, 4, 1, 1), (1, 3, 33, 65), (2, 2, 64, 64))

BOOL, BYTE, CHAR, INT, LONG = ScalarType.BOOL, ScalarType.BYTE, ScalarType.CHAR, ScalarType.INT, ScalarType.LONG

FLOAT, DOUBLE = ScalarType.FLOAT, ScalarType.DOUBLE


def broadcast_shapes(shape: Shape) -> Iterator[Shape]:
    yield from ((), (1,), shape[-1:])
    if len(shape) > 1:
        yield (*shape[:-1], 1)


def data(shape: Iterable[int], dtype: ScalarType | None = None) -> TensorArg:
    """Return a tensor argument with random positive and negative numbers, without zeros."""
    return TensorArg(tuple(shape), dtype)


def indices(below: int, *shape: int) -> TensorArg:
    """Return a tensor argument with indices from 0 up to, but not including, ``below``."""
    return TensorArg(shape, LONG, below=below)


def make_case(shape: Shape, arguments: Mapping[str, Any], *more: TensorArg) -> Case:
    return Case(arguments, (data(shape), *more))
