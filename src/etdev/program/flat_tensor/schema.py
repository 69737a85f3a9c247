"""Flatbuffer layout of the tables of FT01. Field numbers are positions in ``flat_tensor.fbs``."""

from __future__ import annotations

from etdev.program.flat_tensor import model as f
from etdev.program.model import MAX_RANK
from etdev.program.schema import EXTENT, OMITTED, REFUSED, SCALAR_TYPE, Field, Many, One, Scalar, Scalars, Table, Text
from etdev.program.schema import table as _table

_I32, _U8, _U32 = Scalar("i"), Scalar("B"), Scalar("I")

TENSOR_LAYOUT = _table(
    f.TensorLayout,
    Field(0, "scalar_type", SCALAR_TYPE),
    Field(1, "sizes", Scalars(_I32, MAX_RANK)),
    Field(2, "dim_order", Scalars(_U8, MAX_RANK)),
)
NAMED_DATA = _table(
    f.NamedData,
    Field(0, "key", Text(), REFUSED),
    Field(1, "segment_index", _U32),
    Field(2, "tensor_layout", One(TENSOR_LAYOUT), OMITTED),
)
_ROOT_FIELDS = (
    Field(0, "version", _U32),
    Field(1, "segments", Many(EXTENT)),
    Field(2, "named_data", Many(NAMED_DATA)),
)
FLAT_TENSOR = Table(
    "FlatTensor",
    lambda *values: dict(zip([field.name for field in _ROOT_FIELDS], values, strict=True)),
    lambda value: tuple(value[field.name] for field in _ROOT_FIELDS),
    _ROOT_FIELDS,
)
"""The root table. It decodes to a dictionary from field names to values. A segment is a pair (offset, size)."""
