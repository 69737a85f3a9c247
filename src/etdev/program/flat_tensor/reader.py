"""Reader of untrusted ``.ptd`` files."""

from __future__ import annotations

import os
from pathlib import Path

from etdev.program.blob import Blob
from etdev.program.decode import Decoder
from etdev.program.flat_tensor.check import check_flat_tensor
from etdev.program.flat_tensor.header import LENGTH, Header, parse_header
from etdev.program.flat_tensor.model import FlatTensor
from etdev.program.flat_tensor.schema import FLAT_TENSOR
from etdev.program.flaw import FlawError
from etdev.program.header import HEADER_OFFSET
from etdev.program.mapped import map_file
from etdev.program.segments import cut_segments

_DEFAULT_ALIGNMENT, _MOST_ALIGNMENT = 128, 16 << 10
_REMEDY = "copy or build the file again: it is not a .ptd, or it is truncated or damaged"


def read(path: str | os.PathLike[str]) -> FlatTensor:
    """Read and check the data in a file. Segments stay in the file and are mapped.

    Raises :class:`~etdev.errors.ProgramError` if the file cannot be read or is malformed.
    """
    return parse(map_file(Path(path), "external data"), where=os.fspath(path))


def parse(content: Blob, *, where: str | None = None) -> FlatTensor:
    """Parse and check data. The result refers to ``content``. ``where`` is the file's name in errors."""
    try:
        data = _parse(content)
        check_flat_tensor(data)
    except FlawError as flaw:
        raise flaw.as_error(where, _REMEDY if where is not None else None) from None
    return data


def _parse(content: Blob) -> FlatTensor:
    header = parse_header(content.view)
    decoder = Decoder(content.cut(0, header.program_size))
    fields = decoder.root(FLAT_TENSOR, HEADER_OFFSET + header.length)
    base, said = header.segment_base_offset, header.segment_data_size
    segments, end = cut_segments(content, base, fields.pop("segments"), said)
    if said == 0 and any(segment.data for segment in segments):
        raise FlawError(
            f"the header states 0 bytes, but the last segment ends at {end - base}", "header.segment_data_size"
        )
    return FlatTensor(
        **fields,
        segments=segments,
        segment_alignment=min(base & -base, _MOST_ALIGNMENT) if base else _DEFAULT_ALIGNMENT,
        unknown_fields=(*decoder.unknown, *_unknown_to_header(content, header, end)),
    )


def _unknown_to_header(content: Blob, header: Header, end: int) -> list[str]:
    unknown = []
    if header.length > LENGTH:
        unknown.append(f"header: {header.length - LENGTH} more bytes")
    behind = max(end, header.program_size)
    rest = content.cut(behind, len(content) - behind)
    if not rest.is_zero():
        unknown.append(f"{len(rest)} bytes after the last segment")
    return unknown
