"""Writing a ``.pte``: the flatbuffer with its extended header, then the segments at their places."""

from __future__ import annotations

import os
from io import BytesIO, FileIO
from pathlib import Path

from etdev.files import atomic_path
from etdev.program.check import check_program
from etdev.program.encode import encode
from etdev.program.flaw import FlawError
from etdev.program.header import HEADER_OFFSET, LONG, Header
from etdev.program.model import Program
from etdev.program.schema import PROGRAM

_ROOT_OFFSET_BYTES = 4
_CHUNK = 1 << 20
"""Bytes of a write. Larger ones miss the cache and take twice as long."""


def write(program: Program, path: str | os.PathLike[str]) -> None:
    """Write the file whole or not at all; segments stream from where they are.

    Equal programs of equal alignments give the same bytes. Raises :class:`~etdev.errors.ProgramError` if the program
    is not valid or has fields that would be lost, :class:`~etdev.errors.WriteError` if the file cannot be written.
    """
    with atomic_path(Path(path)) as temporary:
        write_into(program, temporary)


def write_into(program: Program, path: Path) -> None:
    """Write to a file that nobody else reads yet; :func:`write` is for all others.

    Raises :class:`OSError` as it comes.
    """
    head, base = _checked_head(program)
    with open(path, "wb", buffering=0, opener=_open_empty) as file:
        _write_all(memoryview(head), 0, file)
        _write_segments(program, base, len(head), file)


def serialize(program: Program) -> bytes:
    """What :func:`write` writes: for a program that lies inside another one. Raises as that does."""
    head, base = _checked_head(program)
    content = BytesIO()
    _write_all(memoryview(head), 0, content)
    _write_segments(program, base, len(head), content)
    return content.getvalue()


def _checked_head(program: Program) -> tuple[bytearray, int]:
    try:
        return _head(program)
    except FlawError as flaw:
        raise flaw.as_error(None) from None


def _open_empty(path: str, flags: int) -> int:
    """Open a file that is empty already. To truncate it again makes ext4 write it to the disk when it is closed."""
    return os.open(path, flags & ~os.O_TRUNC)


def _head(program: Program) -> tuple[bytearray, int]:
    """All that comes before the segments, without padding, and where in the file the first segment begins."""
    if program.unknown_fields:
        lost = ", ".join(program.unknown_fields)
        raise FlawError(f"the program has what this version of etdev does not know and would lose: {lost}")
    check_program(program)
    fields = {field.name: getattr(program, field.name) for field in PROGRAM.fields}
    fields["segments"] = tuple((segment.offset, len(segment.data)) for segment in program.segments)
    content, alignment = encode(PROGRAM, fields, inline_alignment=program.inline_alignment)
    if program.header_length is None:
        return content, 0
    # As long as the header may get, and so that what is aligned in the flatbuffer stays so in the file.
    room = _align(LONG, alignment)
    size = len(content) + room
    end = max((segment.offset + len(segment.data) for segment in program.segments), default=0)
    base = _align(size, program.segment_alignment) if end else 0
    header = Header(program.header_length, size, base, end).pack()
    root = int.from_bytes(content[:_ROOT_OFFSET_BYTES], "little") + room
    content[:_ROOT_OFFSET_BYTES] = root.to_bytes(_ROOT_OFFSET_BYTES, "little")
    content[HEADER_OFFSET:HEADER_OFFSET] = header.ljust(room, b"\0")
    return content, base


def _write_segments(program: Program, base: int, at: int, file: FileIO | BytesIO) -> None:
    """Write from byte ``at`` of the file on. Nothing is sought: the file may be a pipe."""
    if not base:
        return
    for segment in program.segments:
        place = base + segment.offset
        while at < place:
            zeros = bytes(min(place - at, _CHUNK))
            _write_all(memoryview(zeros), at, file)
            at += len(zeros)
        for view in segment.data.views:
            _write_all(view, at, file)
            at += view.nbytes


def _write_all(content: memoryview, at: int, file: FileIO | BytesIO) -> None:
    """Write at byte ``at`` of the file, in pieces that end at multiples of a chunk: that is twice as fast."""
    start = 0
    while start < len(content):
        # A file without a buffer may take less than it is given.
        start += file.write(content[start : start + _CHUNK - (at + start) % _CHUNK])


def _align(size: int, alignment: int) -> int:
    return (size + alignment - 1) // alignment * alignment
