"""The extended header of a ``.pte``. It states the length of the flatbuffer and the place of the segments.

The header is at byte 8, after the flatbuffer's root offset and identifier. Source: ``schema/extended_header.cpp``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from etdev.program.flaw import FlawError

IDENTIFIER = b"ET12"
IDENTIFIER_OFFSET = 4
HEADER_OFFSET = 8
MAGIC = b"eh00"
SHORT, LONG = 24, 32
"""Lengths of the header in bytes: without ``segment_data_size``, and with it."""

_SHORT_FORM = struct.Struct("<4sIQQ")
_DATA_SIZE = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Header:
    """Fields of the header."""

    length: int
    """Size of the header in bytes, as stated in the header: 24, or at least 32."""
    program_size: int
    """Size of the flatbuffer in bytes, this header included."""
    segment_base_offset: int
    """Start of the first segment in the file, or 0 if there are no segments."""
    segment_data_size: int
    """Number of bytes from the start of the first segment to the end of the last. 0 if the header lacks this field."""

    def pack(self) -> bytes:
        """Return the header's bytes."""
        head = _SHORT_FORM.pack(MAGIC, self.length, self.program_size, self.segment_base_offset)
        return head if self.length == SHORT else head + _DATA_SIZE.pack(self.segment_data_size)


def parse_header(content: memoryview) -> Header | None:
    """Parse the header of a file, and check the file's identifier. Return None if the file has no header."""
    if len(content) < HEADER_OFFSET:
        raise FlawError(f"the file has {len(content)} bytes, too few for a program")
    identifier = bytes(content[IDENTIFIER_OFFSET:HEADER_OFFSET])
    if identifier != IDENTIFIER:
        raise FlawError(_foreign(identifier))
    if bytes(content[HEADER_OFFSET : HEADER_OFFSET + len(MAGIC)]) != MAGIC:
        return None
    if len(content) < HEADER_OFFSET + SHORT:
        raise FlawError("the file ends inside the extended header")
    _, length, program_size, base = _SHORT_FORM.unpack_from(content, HEADER_OFFSET)
    if length != SHORT and length < LONG:
        raise FlawError(f"expected {SHORT}, or a number of {LONG} or more, found {length}", "header.length")
    if HEADER_OFFSET + length > program_size or program_size > len(content):
        raise FlawError(
            f"expected {HEADER_OFFSET + length} to {len(content)} bytes, found {program_size}", "header.program_size"
        )
    if base and not program_size <= base <= len(content):
        raise FlawError(
            f"the first segment is at byte {base}, but "
            f"the flatbuffer ends at {program_size} and the file at {len(content)}",
            "header.segment_base_offset",
        )
    size = _DATA_SIZE.unpack_from(content, HEADER_OFFSET + SHORT)[0] if length >= LONG else 0
    if size and base + size > len(content):
        raise FlawError(
            f"{size} bytes that start at byte {base} extend past the end of the file at byte {len(content)}",
            "header.segment_data_size",
        )
    return Header(length, program_size, base, size)


def _foreign(identifier: bytes) -> str:
    if identifier[:2] == IDENTIFIER[:2]:
        return f"the file's schema is {identifier.decode('ascii', 'replace')}; this version of etdev reads ET12"
    return "this is not an ExecuTorch program"
