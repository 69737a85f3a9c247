"""Writer of ``.pte`` files: the flatbuffer with its extended header, then the segments."""

from __future__ import annotations

import os
from pathlib import Path

from etdev.files import atomic_path
from etdev.program.check import check_program
from etdev.program.encode import encode
from etdev.program.flaw import FlawError
from etdev.program.header import HEADER_OFFSET, IDENTIFIER, LONG, Header
from etdev.program.model import Program
from etdev.program.schema import PROGRAM
from etdev.program.segments import align, joined_parts, write_parts

_ROOT_OFFSET_BYTES = 4


def write(program: Program, path: str | os.PathLike[str]) -> None:
    """Write the file atomically, streaming the segments.

    Equal programs with equal alignments yield the same bytes. Raises :class:`~etdev.errors.ProgramError` if the program
    is not valid or has fields that would be lost. Raises :class:`~etdev.errors.WriteError` if the file cannot be
    written.
    """
    with atomic_path(Path(path)) as temporary:
        write_into(program, temporary)


def write_into(program: Program, path: Path) -> None:
    """Write to a file that no reader has open. For all other files, use :func:`write`.

    Raises :class:`OSError` if the file cannot be written.
    """
    head, base = _checked_head(program)
    write_parts(head, base, program.segments, path)


def serialize(program: Program) -> bytes:
    """Return the bytes that :func:`write` would write, to embed the program in another program.

    Raises :class:`~etdev.errors.ProgramError` in the same cases as :func:`write`.
    """
    head, base = _checked_head(program)
    return joined_parts(head, base, program.segments)


def flatbuffer_size(program: Program) -> int:
    """Return the number of bytes in the file before its segments. This function does not check the program."""
    return len(_head(program)[0])


def _checked_head(program: Program) -> tuple[bytearray, int]:
    try:
        if program.unknown_fields:
            lost = ", ".join(program.unknown_fields)
            raise FlawError(f"the program has fields that this version of etdev does not know and would lose: {lost}")
        check_program(program)
        return _head(program)
    except FlawError as flaw:
        raise flaw.as_error(None) from None


def _head(program: Program) -> tuple[bytearray, int]:
    """Return the bytes before the segments, without padding, and the offset at which the first segment starts."""
    fields = {field.name: getattr(program, field.name) for field in PROGRAM.fields}
    fields["segments"] = tuple((segment.offset, len(segment.data)) for segment in program.segments)
    content, alignment = encode(PROGRAM, fields, identifier=IDENTIFIER, inline_alignment=program.inline_alignment)
    if program.header_length is None:
        return content, 0
    # Reserve room for the longest header. Its size is a multiple of the alignment, so that data stays aligned.
    room = align(LONG, alignment)
    size = len(content) + room
    end = max((segment.offset + len(segment.data) for segment in program.segments), default=0)
    base = align(size, program.segment_alignment) if end else 0
    header = Header(program.header_length, size, base, end).pack()
    root = int.from_bytes(content[:_ROOT_OFFSET_BYTES], "little") + room
    content[:_ROOT_OFFSET_BYTES] = root.to_bytes(_ROOT_OFFSET_BYTES, "little")
    content[HEADER_OFFSET:HEADER_OFFSET] = header.ljust(room, b"\0")
    return content, base
