"""Reading a ``.pte`` that may have come from anywhere."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import Any

from etdev.errors import ProgramError
from etdev.files import describe_os_error
from etdev.program.blob import Blob
from etdev.program.check import check_program
from etdev.program.decode import Decoder
from etdev.program.flaw import FlawError
from etdev.program.header import HEADER_OFFSET, LONG, Header, parse_header
from etdev.program.model import Program, Segment
from etdev.program.schema import PROGRAM

_MOST_ALIGNMENT = 16 << 10
"""Largest alignment that is taken to be meant: the largest page of a processor that runs such programs."""
_DEFAULT_SEGMENT_ALIGNMENT = 128
_DEFAULT_INLINE_ALIGNMENT = 16
_REMEDY = "it is no .pte, or one that was cut short or damaged: copy it again, or build it again"


def read(path: str | os.PathLike[str]) -> Program:
    """The program in a file, all of it checked.

    Segments stay in the file and are mapped: they cost no memory, and the file may be replaced (not overwritten in
    place) while the program lives. Raises :class:`~etdev.errors.ProgramError`.
    """
    return parse(_map(Path(path)), where=os.fspath(path))


def parse(content: Blob, *, where: str | None = None) -> Program:
    """The program in some bytes, which it refers to; ``where`` names them in errors."""
    try:
        program = _parse(content)
        check_program(program)
    except FlawError as flaw:
        raise flaw.as_error(where, _REMEDY if where is not None else None) from None
    return program


def _map(path: Path) -> Blob:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ProgramError("expected a file, found a folder, a device or a pipe", where=os.fspath(path))
            return Blob(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if status.st_size else b"")
    except OSError as error:
        cause = "there is no such file" if isinstance(error, FileNotFoundError) else describe_os_error(error)[0]
        raise ProgramError(f"cannot read the program: {cause}", where=os.fspath(path)) from error


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for anybody at the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parse(content: Blob) -> Program:
    header = parse_header(content.view)
    decoder = Decoder(content if header is None else content.cut(0, header.program_size))
    fields = decoder.root(PROGRAM, HEADER_OFFSET if header is None else HEADER_OFFSET + header.length)
    segments, end = _segments(content, header, fields.pop("segments"))
    return Program(
        **fields,
        segments=segments,
        header_length=None if header is None else min(header.length, LONG),
        segment_alignment=_segment_alignment(header, segments),
        inline_alignment=_alignment(decoder.data_places, _DEFAULT_INLINE_ALIGNMENT),
        unknown_fields=(*decoder.unknown, *_unknown_to_header(content, header, end)),
    )


def _segments(content: Blob, header: Header | None, extents: Any) -> tuple[tuple[Segment, ...], int]:
    """The segments, and where in the file the last one ends."""
    base = header.segment_base_offset if header else 0
    room = len(content) - base if base else 0
    segments, end = [], 0
    for index, (offset, size) in enumerate(extents):
        if offset + size > room:
            raise FlawError(f"{size} bytes from {offset} on of {room}", "segments", f"[{index}]")
        segments.append(Segment(offset, content.cut(base + offset, size)))
        end = offset + size
    if header and header.segment_data_size and end > header.segment_data_size:
        raise FlawError(
            f"{header.segment_data_size} bytes, but the last segment ends at {end}", "header.segment_data_size"
        )
    return tuple(segments), base + end


def _unknown_to_header(content: Blob, header: Header | None, end: int) -> list[str]:
    if header is None:
        return []
    unknown = []
    if header.length > LONG:
        unknown.append(f"header: {header.length - LONG} more bytes")
    behind = max(end, header.program_size)
    rest = content.cut(behind, len(content) - behind)
    if not rest.is_zero():
        unknown.append(f"{len(rest)} bytes behind the last segment")
    return unknown


def _segment_alignment(header: Header | None, segments: tuple[Segment, ...]) -> int:
    if header is None or not segments or not header.segment_base_offset:
        return _DEFAULT_SEGMENT_ALIGNMENT
    return _alignment([header.segment_base_offset], _DEFAULT_SEGMENT_ALIGNMENT)


def _alignment(places: list[int], default: int) -> int:
    """Largest power of two that divides all of them, up to what can be meant."""
    if not places:
        return default
    bits = _MOST_ALIGNMENT
    for place in places:
        bits |= place
    return bits & -bits
