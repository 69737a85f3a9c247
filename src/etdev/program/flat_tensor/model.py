"""The ``.ptd`` in memory: the schema FT01 as frozen dataclasses, named as in ``flat_tensor.fbs``."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from etdev.program.model import ScalarType, Segment

SUFFIX = ".ptd"
"""Ends the name of such a file."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """How the bytes of a tensor are to be understood."""

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    """In elements."""
    dim_order: tuple[int, ...]
    """Dimensions from the outermost in memory to the innermost."""

    @property
    def nbytes(self) -> int:
        """Bytes of such a tensor."""
        return prod(self.sizes) * self.scalar_type.itemsize


@dataclass(frozen=True, slots=True)
class NamedData:
    """Data that is looked up by name. Several names may have the same segment."""

    key: str
    """Of a tensor, its name: ``mod.linear.weight``."""
    segment_index: int
    """Index into ``FlatTensor.segments``."""
    tensor_layout: TensorLayout | None = None
    """None for what is not a tensor: what a delegate looks up."""


@dataclass(frozen=True, slots=True)
class FlatTensor:
    """A ``.ptd`` file."""

    segments: tuple[Segment, ...] = ()
    named_data: tuple[NamedData, ...] = ()
    version: int = 0
    """Of the schema; the runtime takes 0 only."""

    segment_alignment: int = field(default=128, compare=False)
    """Power of two that the place of the first segment in the file is a multiple of: of a file that was read, the
    largest that it fits. Not part of what makes two equal."""
    unknown_fields: tuple[str, ...] = ()
    """What the file has and this schema does not know. Such data cannot be written."""
