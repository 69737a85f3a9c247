"""Reader of untrusted ``.pte`` files."""

from __future__ import annotations

import os
import re
from pathlib import Path

from etdev.errors import ProgramError
from etdev.program.blob import Blob
from etdev.program.check import check_program
from etdev.program.decode import Decoder
from etdev.program.flaw import FlawError
from etdev.program.header import HEADER_OFFSET, LONG, Header, parse_header
from etdev.program.mapped import map_file
from etdev.program.model import Program, Segment
from etdev.program.schema import PROGRAM
from etdev.program.segments import cut_segments

_MOST_ALIGNMENT = 16 << 10
"""Largest alignment in bytes that the reader assumes to be intentional. It is the largest page size of processors."""
_DEFAULT_SEGMENT_ALIGNMENT = 128
_DEFAULT_INLINE_ALIGNMENT = 16
_REMEDY = "copy or build the file again: it is not a .pte, or it is truncated or damaged"
_OBJECT = ".object.json"
"""End of the name of a sidecar, the JSON file of an object program."""
_START = 1024
"""Number of bytes at the start of a JSON file of etdev that identify it."""


def read(path: str | os.PathLike[str]) -> Program:
    """Read and check the program in a file.

    Segments stay in the file and are mapped, so they take no memory of their own. While the program is in use, the file
    may be replaced but must not be overwritten in place. Raises :class:`~etdev.errors.ProgramError` if the file cannot
    be read or is malformed.
    """
    return parse(map_file(Path(path)), where=os.fspath(path))


def parse(content: Blob, *, where: str | None = None) -> Program:
    """Parse and check a program. The result refers to ``content``. ``where`` is the file's name in errors."""
    try:
        program = _parse(content)
        check_program(program)
    except FlawError as flaw:
        if where is None:
            raise flaw.as_error(None) from None
        if (other := _json_file(content.view, where)) is not None:
            message, hint = other
            raise ProgramError(message, path="", where=where, hint=hint) from None
        raise flaw.as_error(where, _REMEDY) from None
    return program


def _json_file(content: memoryview, where: str) -> tuple[str, str] | None:
    """Return a message and a remedy for a JSON file that was passed in place of a program; None for other files."""
    start, name = bytes(content[:_START]), Path(where).name
    if not re.match(rb'\s*\{\s*"', start):
        return None
    if name.endswith(_OBJECT) and b'"methods"' in start:
        program = name.removesuffix(_OBJECT)
        message = "this is etdev's description of an object program, not a program"
        return message, f"pass the file that it describes, `{program}.object.pte`, or the program `{program}.pte`"
    if re.search(rb'"format".*"project".*"config"', start, re.DOTALL):
        return "this is etdev's report of a build, not a program", "pass a .pte of the build, or the name of its target"
    return "this is a JSON file, not a program", "pass a .pte file"


def _parse(content: Blob) -> Program:
    header = parse_header(content.view)
    decoder = Decoder(content if header is None else content.cut(0, header.program_size))
    fields = decoder.root(PROGRAM, HEADER_OFFSET if header is None else HEADER_OFFSET + header.length)
    base, said = (header.segment_base_offset, header.segment_data_size) if header else (0, 0)
    segments, end = cut_segments(content, base, fields.pop("segments"), said)
    return Program(
        **fields,
        segments=segments,
        header_length=None if header is None else min(header.length, LONG),
        segment_alignment=_segment_alignment(header, segments),
        inline_alignment=_alignment(decoder.data_places, _DEFAULT_INLINE_ALIGNMENT),
        unknown_fields=(*decoder.unknown, *_unknown_to_header(content, header, end)),
    )


def _unknown_to_header(content: Blob, header: Header | None, end: int) -> list[str]:
    if header is None:
        return []
    unknown = []
    if header.length > LONG:
        unknown.append(f"header: {header.length - LONG} more bytes")
    behind = max(end, header.program_size)
    rest = content.cut(behind, len(content) - behind)
    if not rest.is_zero():
        unknown.append(f"{len(rest)} bytes after the last segment")
    return unknown


def _segment_alignment(header: Header | None, segments: tuple[Segment, ...]) -> int:
    if header is None or not segments or not header.segment_base_offset:
        return _DEFAULT_SEGMENT_ALIGNMENT
    return _alignment([header.segment_base_offset], _DEFAULT_SEGMENT_ALIGNMENT)


def _alignment(places: list[int], default: int) -> int:
    """Return the largest power of two that divides all places, up to ``_MOST_ALIGNMENT``."""
    if not places:
        return default
    bits = _MOST_ALIGNMENT
    for place in places:
        bits |= place
    return bits & -bits
