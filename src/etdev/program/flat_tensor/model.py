"""A ``.ptd`` in memory: the schema FT01 as frozen dataclasses. The names are those of ``flat_tensor.fbs``."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from etdev.program.model import ScalarType, Segment

SUFFIX = ".ptd"
"""Suffix of the names of data files."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Element type, sizes and dimension order of a tensor's bytes."""

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    """Sizes in elements."""
    dim_order: tuple[int, ...]
    """Dimensions from the outermost to the innermost in memory."""

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of a tensor with this layout."""
        return prod(self.sizes) * self.scalar_type.itemsize


@dataclass(frozen=True, slots=True)
class NamedData:
    """Data that is looked up by name. Several names may refer to the same segment."""

    key: str
    """Name of the data. For a tensor, this is its name in the module, such as ``mod.linear.weight``."""
    segment_index: int
    """Index into ``FlatTensor.segments``."""
    tensor_layout: TensorLayout | None = None
    """Layout if the data is a tensor. None for other data, which delegates look up."""


@dataclass(frozen=True, slots=True)
class FlatTensor:
    """A ``.ptd`` file."""

    segments: tuple[Segment, ...] = ()
    named_data: tuple[NamedData, ...] = ()
    version: int = 0
    """Version of the schema. The runtime accepts only 0."""

    segment_alignment: int = field(default=128, compare=False)
    """Alignment of the first segment in the file, a power of two.

    Files do not state this alignment. The reader infers the largest power of two, up to 16 KiB, that divides the
    position of the first segment. The comparison of two files ignores the alignment.
    """
    unknown_fields: tuple[str, ...] = ()
    """Fields of the file that this schema does not know. Data with such fields cannot be written."""
