"""Names of dtypes, for messages and reports."""

from __future__ import annotations

from etdev.program import model as m

_NAMES = {
    m.ScalarType.BYTE: "uint8",
    m.ScalarType.CHAR: "int8",
    m.ScalarType.SHORT: "int16",
    m.ScalarType.INT: "int32",
    m.ScalarType.LONG: "int64",
    m.ScalarType.HALF: "float16",
    m.ScalarType.FLOAT: "float32",
    m.ScalarType.DOUBLE: "float64",
}
"""PyTorch's names for dtypes that have other names in ExecuTorch's schema."""


def dtype_name(scalar_type: m.ScalarType) -> str:
    """Return the name of an element type, such as ``float32``."""
    return _NAMES.get(scalar_type, scalar_type.name.lower())
