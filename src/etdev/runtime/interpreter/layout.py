"""Conversions from the schema's element types and dimension orders to PyTorch's dtypes and strides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from etdev.program import model as m
from etdev.runtime.errors import RunError

if TYPE_CHECKING:
    import torch

_NAMES = {
    m.ScalarType.BYTE: "uint8",
    m.ScalarType.CHAR: "int8",
    m.ScalarType.SHORT: "int16",
    m.ScalarType.INT: "int32",
    m.ScalarType.LONG: "int64",
    m.ScalarType.HALF: "float16",
    m.ScalarType.FLOAT: "float32",
    m.ScalarType.DOUBLE: "float64",
    m.ScalarType.BOOL: "bool",
    m.ScalarType.BFLOAT16: "bfloat16",
    m.ScalarType.FLOAT8E5M2: "float8_e5m2",
    m.ScalarType.FLOAT8E4M3FN: "float8_e4m3fn",
    m.ScalarType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    m.ScalarType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    m.ScalarType.UINT16: "uint16",
    m.ScalarType.UINT32: "uint32",
    m.ScalarType.UINT64: "uint64",
}
"""Maps an element type to the name of PyTorch's dtype, for all types that PyTorch can compute with."""


@cache
def torch_dtype(scalar_type: m.ScalarType) -> torch.dtype:
    """Return the dtype for an element type.

    Raises :class:`~etdev.runtime.errors.RunError` if PyTorch cannot compute with the type.
    """
    import torch

    if scalar_type not in _NAMES:
        raise RunError(f"PyTorch cannot compute with {scalar_type.name}", hint="run the program in the stock runtime")
    dtype: torch.dtype = getattr(torch, _NAMES[scalar_type])
    return dtype


@cache
def scalar_type_of(dtype: torch.dtype) -> m.ScalarType:
    """Return the element type for a dtype.

    Raises :class:`~etdev.runtime.errors.RunError` if programs cannot have this dtype.
    """
    for scalar_type in _NAMES:
        if torch_dtype(scalar_type) == dtype:
            return scalar_type
    raise RunError(f"programs cannot have tensors of {dtype}")


def strides(sizes: Sequence[int], dim_order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor, in elements. ``dim_order`` begins with the outermost dimension."""
    found = [0] * len(sizes)
    step = 1
    for dim in reversed(dim_order):
        found[dim] = step
        step *= max(sizes[dim], 1)
    return tuple(found)
