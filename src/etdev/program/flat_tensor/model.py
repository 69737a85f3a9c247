"""The ``.ptd`` in memory: the schema FT01 as frozen dataclasses, named as in ``flat_tensor.fbs``."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from etdev.program.model import ScalarType, Segment

SUFFIX = ".ptd"
"""Suffix of the names of such files."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Layout of the bytes of a tensor."""

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    """Sizes in elements."""
    dim_order: tuple[int, ...]
    """Dimensions from the outermost in memory to the innermost."""

    @property
    def nbytes(self) -> int:
        """Bytes of a tensor with this layout."""
        return prod(self.sizes) * self.scalar_type.itemsize


@dataclass(frozen=True, slots=True)
class NamedData:
    """Data that is looked up by name. Several names may refer to the same segment."""

    key: str
    """Key of the data; for a tensor, its name, such as ``mod.linear.weight``."""
    segment_index: int
    """Index into ``FlatTensor.segments``."""
    tensor_layout: TensorLayout | None = None
    """Layout of a tensor; None for other data, which a delegate looks up."""


@dataclass(frozen=True, slots=True)
class FlatTensor:
    """A ``.ptd`` file."""

    segments: tuple[Segment, ...] = ()
    named_data: tuple[NamedData, ...] = ()
    version: int = 0
    """Version of the schema; the runtime accepts 0 only."""

    segment_alignment: int = field(default=128, compare=False)
    """Power of two that divides the place of the first segment in the file.

    For a file that was read, it is the largest that the file fits, up to 16 KiB. It does not count when two files are
    compared.
    """
    unknown_fields: tuple[str, ...] = ()
    """Fields of the file that this schema does not know. Data with any cannot be written."""
