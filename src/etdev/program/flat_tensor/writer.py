"""Writer of ``.ptd`` files: the flatbuffer, which includes the header, then the segments at their places."""

from __future__ import annotations

import os
from pathlib import Path

from etdev.files import atomic_path
from etdev.program.encode import encode
from etdev.program.flat_tensor.check import check_flat_tensor
from etdev.program.flat_tensor.header import IDENTIFIER, LENGTH, Header
from etdev.program.flat_tensor.model import FlatTensor
from etdev.program.flat_tensor.schema import FLAT_TENSOR
from etdev.program.flaw import FlawError
from etdev.program.header import HEADER_OFFSET
from etdev.program.segments import align, joined_parts, write_parts

_ROOT_OFFSET_BYTES = 4
_HEADER_ALIGNMENT = 16


def write(data: FlatTensor, path: str | os.PathLike[str]) -> None:
    """Write the file atomically, streaming the segments. Equal data yields the same bytes.

    Raises :class:`~etdev.errors.ProgramError` if the data is not valid or has fields that would be lost. Raises
    :class:`~etdev.errors.WriteError` if the file cannot be written.
    """
    with atomic_path(Path(path)) as temporary:
        write_into(data, temporary)


def write_into(data: FlatTensor, path: Path) -> None:
    """Write to a file that no reader has open. For all other files, use :func:`write`.

    Raises :class:`OSError` if the file cannot be written.
    """
    head, base = _checked_head(data)
    write_parts(head, base, data.segments, path)


def serialize(data: FlatTensor) -> bytes:
    """Return the bytes that :func:`write` would write.

    Raises :class:`~etdev.errors.ProgramError` in the same cases as :func:`write`.
    """
    head, base = _checked_head(data)
    return joined_parts(head, base, data.segments)


def _checked_head(data: FlatTensor) -> tuple[bytearray, int]:
    try:
        return _head(data)
    except FlawError as flaw:
        raise flaw.as_error(None) from None


def _head(data: FlatTensor) -> tuple[bytearray, int]:
    """Return the bytes before the segments, without padding, and the offset at which the first segment starts."""
    if data.unknown_fields:
        lost = ", ".join(data.unknown_fields)
        raise FlawError(f"the file has fields that this version of etdev does not know and would lose: {lost}")
    check_flat_tensor(data)
    fields = {field.name: getattr(data, field.name) for field in FLAT_TENSOR.fields}
    fields["segments"] = tuple((segment.offset, len(segment.data)) for segment in data.segments)
    content, alignment = encode(FLAT_TENSOR, fields, identifier=IDENTIFIER, inline_alignment=1)
    room = align(LENGTH, max(alignment, _HEADER_ALIGNMENT))
    end = max((segment.offset + len(segment.data) for segment in data.segments), default=0)
    base = align(room + len(content), data.segment_alignment) if end else 0
    header = Header(LENGTH, room, len(content), base, end).pack()
    root = int.from_bytes(content[:_ROOT_OFFSET_BYTES], "little") + room
    content[:_ROOT_OFFSET_BYTES] = root.to_bytes(_ROOT_OFFSET_BYTES, "little")
    content[HEADER_OFFSET:HEADER_OFFSET] = header.ljust(room, b"\0")
    return content, base
