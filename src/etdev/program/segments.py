"""Segments: the data after the flatbuffer of a ``.pte`` or a ``.ptd``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from io import BytesIO, FileIO
from pathlib import Path

from etdev.program.blob import CHUNK, Blob
from etdev.program.flaw import FlawError
from etdev.program.model import Segment

SEGMENT_ALIGNMENT = 128
"""Alignment in bytes that ExecuTorch uses for segments in both kinds of files."""
CONSTANT_ALIGNMENT = 16
"""Alignment in bytes that ExecuTorch uses for constants in their segment, and for data inside the flatbuffer."""


def cut_segments(
    content: Blob, base: int, extents: Iterable[tuple[int, int]], said: int
) -> tuple[tuple[Segment, ...], int]:
    """Return two values: the segments with these offsets and sizes, and the end of the last segment in the file.

    ``base`` is the start of the first segment in the file, or 0 if there are no segments. ``said`` is the total
    size of all segments according to the header, or 0 if the header states no size. Raises :class:`FlawError` for
    bytes outside of the file.
    """
    room = len(content) - base if base else 0
    segments, end = [], 0
    for index, (offset, size) in enumerate(extents):
        if offset + size > room:
            raise FlawError(
                f"{size} bytes at offset {offset} reach past the end of the file; {room} bytes are available",
                "segments",
                f"[{index}]",
            )
        segments.append(Segment(offset, content.cut(base + offset, size)))
        end = offset + size
    if said and end > said:
        raise FlawError(
            f"the header states {said} bytes, but the last segment ends at {end}", "header.segment_data_size"
        )
    return tuple(segments), base + end


def check_order(segments: Sequence[Segment]) -> int:
    """Return the end of the last segment. Raise :class:`FlawError` unless the segments are in order and disjoint."""
    end = 0
    for index, segment in enumerate(segments):
        if segment.offset < end:
            raise FlawError(
                f"the segment begins at {segment.offset}, but the previous segment ends at {end}",
                "segments",
                f"[{index}]",
            )
        end = segment.offset + len(segment.data)
    return end


def laid_out(data: Iterable[Blob], alignment: int) -> tuple[Segment, ...]:
    """Return the blobs as segments in order, each at the next multiple of ``alignment``.

    Empty segments take no space.
    """
    segments: list[Segment] = []
    end = 0
    for blob in data:
        offset = align(end, alignment) if len(blob) else end
        segments.append(Segment(offset, blob))
        end = offset + len(blob)
    return tuple(segments)


def write_parts(head: bytearray, base: int, segments: Sequence[Segment], path: Path) -> None:
    """Write ``head``, then the segments from byte ``base`` on. No reader may have the file open. Raises OSError."""
    with open(path, "wb", buffering=0, opener=_open_empty) as file:
        _write_parts(head, base, segments, file)


def joined_parts(head: bytearray, base: int, segments: Sequence[Segment]) -> bytes:
    """Return the bytes that :func:`write_parts` would write."""
    content = BytesIO()
    _write_parts(head, base, segments, content)
    return content.getvalue()


def _write_parts(head: bytearray, base: int, segments: Sequence[Segment], file: FileIO | BytesIO) -> None:
    _write_all(Blob(memoryview(head)), 0, file)
    _write_segments(segments, base, len(head), file)


def _write_segments(segments: Iterable[Segment], base: int, at: int, file: FileIO | BytesIO) -> None:
    """Write the segments. The next byte of the file is byte ``at``, and the first segment begins at byte ``base``.

    The function does not seek, so the file may be a pipe.
    """
    if not base:
        return
    for segment in segments:
        place = base + segment.offset
        while at < place:
            zeros = Blob(bytes(min(place - at, CHUNK)))
            _write_all(zeros, at, file)
            at += len(zeros)
        _write_all(segment.data, at, file)
        at += len(segment.data)


def _write_all(content: Blob, at: int, file: FileIO | BytesIO) -> None:
    """Write ``content`` at byte ``at`` of the file. Pieces end at multiples of ``CHUNK``, which doubles the speed."""
    for piece in content.pieces(at):
        start = 0
        while start < len(piece):
            start += file.write(piece[start:])  # An unbuffered file may accept fewer bytes than requested.


def _open_empty(path: str, flags: int) -> int:
    """Open an empty file without truncating it. After a truncation, ext4 would flush the file to disk on close."""
    return os.open(path, flags & ~os.O_TRUNC)


def align(size: int, alignment: int) -> int:
    """Return ``size`` rounded up to a multiple of ``alignment``."""
    return (size + alignment - 1) // alignment * alignment
