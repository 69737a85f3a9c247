"""Segments of a program that is emitted directly: constants, data of delegates, and data that delegates look up.

The segments have the order and the alignment of ExecuTorch's serializer (``exir/_serialize/_program.py``, equal in
executorch 1.4.1 and 1.5.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etdev.pipeline.stages.emit.values import NotPlainError
from etdev.program import Program
from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.segments import CONSTANT_ALIGNMENT, SEGMENT_ALIGNMENT, align

if TYPE_CHECKING:
    import torch

_HEADER_LENGTH = 32
"""Number of bytes of the extended header. A file without data in segments has no extended header."""
_SAMPLE = 1024
"""Number of leading bytes to compare first when two constants have the same size."""


class Constants:
    """The constants of a program. Constants with the same bytes are stored once."""

    def __init__(self) -> None:
        self._data: list[torch.Tensor] = []
        self._alike: dict[tuple[int, bytes], list[int]] = {}

    def add(self, tensor: torch.Tensor) -> int:
        """Add the bytes of a tensor, and return the index of its data, starting at 1.

        The tensor must cover its whole storage, because all bytes of the storage are added.
        """
        import torch

        data = torch.empty(0, dtype=torch.uint8).set_(tensor.detach().untyped_storage())
        known = self._alike.setdefault((data.nbytes, bytes(data[:_SAMPLE].numpy())), [])
        for index in known:
            if torch.equal(self._data[index - 1], data):
                return index
        self._data.append(data)
        known.append(len(self._data))
        return len(self._data)

    def segment(self) -> tuple[Blob, tuple[int, ...]]:
        """Return the segment's data, and the offset of each constant. The first offset is for the reserved index 0."""
        parts, offsets, end = [], [0], 0
        for data in self._data:
            content: Any = data.numpy()
            start = align(end, CONSTANT_ALIGNMENT)
            parts += [Blob(bytes(start - end)), Blob(memoryview(content))]
            offsets.append(start)
            end = start + data.nbytes
        return Blob.joined(parts), tuple(offsets)


class Delegates:
    """Data of the delegates of a program. Delegates with equal data share one copy."""

    def __init__(self) -> None:
        """Create an empty table."""
        self._index: dict[bytes, int] = {}

    def add(self, module: Any) -> m.BackendDelegate:
        """Add a ``LoweredBackendModule``, and return its delegate; raises NotPlainError."""
        data = module.processed_bytes
        if not data:
            raise NotPlainError(f"a delegate of {module.backend_id} has no data")
        index = self._index.setdefault(data, len(self._index) + 1)  # Segment 0 has the constants.
        place = m.BackendDelegateDataReference(m.DataLocation.SEGMENT, index)
        specs = tuple(m.CompileSpec(spec.key, bytes(spec.value)) for spec in module.compile_specs)
        return m.BackendDelegate(module.backend_id, place, specs)

    def blobs(self) -> list[Blob]:
        """Return the data of each segment, in order."""
        return [Blob(data) for data in self._index]


def program_of(plans: Sequence[m.ExecutionPlan], constants: Constants, delegates: Delegates, named: Any) -> Program:
    """Return a program with these methods and this data.

    ``named`` is ExecuTorch's ``NamedDataStoreOutput`` with the data that delegates look up by name. Raises
    :class:`NotPlainError` if some of that data belongs in a separate file.
    """
    if named.external_data:
        raise NotPlainError("a delegate has data in a file of its own")
    data, offsets = constants.segment()
    blobs = [(data, 1), *((blob, 1) for blob in delegates.blobs())]
    places: dict[int, int] = {}
    keys = []
    for key, entry in named.pte_data.items():
        if entry.buffer_index not in places:
            places[entry.buffer_index] = len(blobs)
            blobs.append((Blob(named.buffers[entry.buffer_index]), entry.alignment))
        keys.append(m.NamedData(key, places[entry.buffer_index]))
    segments: list[m.Segment] = []
    end = 0
    for blob, alignment in blobs:
        start = align(end, math.lcm(SEGMENT_ALIGNMENT, alignment))
        segments.append(m.Segment(start, blob))
        end = start + len(blob)
    return Program(
        tuple(plans),
        segments=tuple(segments),
        constant_segment=m.SubsegmentOffsets(0, offsets),
        named_data=tuple(keys),
        header_length=_HEADER_LENGTH if end else None,
    )
