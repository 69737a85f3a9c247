"""The header of a ``.ptd``. It states the end of the flatbuffer and the place of the segments.

The header is at byte 8, after the flatbuffer's root offset and identifier. Source:
``extension/flat_tensor/serialize/flat_tensor_header.cpp``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from etdev.program.flaw import FlawError
from etdev.program.header import HEADER_OFFSET, IDENTIFIER_OFFSET

IDENTIFIER = b"FT01"
MAGIC = b"FH01"
LENGTH = 40
"""Size of the header in bytes."""

_FORM = struct.Struct("<4sIQQQQ")


@dataclass(frozen=True, slots=True)
class Header:
    """Fields of the header."""

    length: int
    """Size of the header in bytes, as stated in the header: 40 or more."""
    flatbuffer_offset: int
    """Number of bytes that the header and its padding add to the flatbuffer."""
    flatbuffer_size: int
    """Size of the flatbuffer in bytes, without the header and its padding. See :attr:`program_size`."""
    segment_base_offset: int
    """Start of the first segment in the file, or 0 if there are no segments."""
    segment_data_size: int
    """Number of bytes from the start of the first segment to the end of the last segment."""

    @property
    def program_size(self) -> int:
        """Return the end of the flatbuffer in the file. The flatbuffer includes the header."""
        return self.flatbuffer_offset + self.flatbuffer_size

    def pack(self) -> bytes:
        """Return the header's bytes."""
        return _FORM.pack(
            MAGIC,
            self.length,
            self.flatbuffer_offset,
            self.flatbuffer_size,
            self.segment_base_offset,
            self.segment_data_size,
        )


def parse_header(content: memoryview) -> Header:
    """Parse the header of a file, and check the file's identifier."""
    if len(content) < HEADER_OFFSET + LENGTH:
        raise FlawError(f"the file has {len(content)} bytes, too few for a .ptd")
    identifier = bytes(content[IDENTIFIER_OFFSET:HEADER_OFFSET])
    if identifier != IDENTIFIER:
        raise FlawError(_foreign(identifier))
    magic, *numbers = _FORM.unpack_from(content, HEADER_OFFSET)
    if magic != MAGIC:
        raise FlawError("expected FH01 at byte 8", "header.magic")
    header = Header(*numbers)
    if not LENGTH <= header.length <= header.flatbuffer_offset:
        raise FlawError(
            f"expected a number from {LENGTH} to {header.flatbuffer_offset} (flatbuffer_offset), found {header.length}",
            "header.length",
        )
    if HEADER_OFFSET + header.length > header.program_size or header.program_size > len(content):
        raise FlawError(
            f"the flatbuffer ends at {header.program_size}; expected {HEADER_OFFSET + header.length} to {len(content)}",
            "header.flatbuffer_size",
        )
    base, size = header.segment_base_offset, header.segment_data_size
    if base and not header.program_size <= base <= len(content):
        raise FlawError(
            f"the first segment is at byte {base}, but "
            f"the flatbuffer ends at {header.program_size} and the file at {len(content)}",
            "header.segment_base_offset",
        )
    if base + size > len(content) or (size and not base):
        raise FlawError(
            f"{size} bytes that start at byte {base} extend past the end of the file at byte {len(content)}",
            "header.segment_data_size",
        )
    return header


def _foreign(identifier: bytes) -> str:
    if identifier[:2] == IDENTIFIER[:2]:
        return f"the file's schema is {identifier.decode('ascii', 'replace')}; this version of etdev reads FT01"
    return "this is not a file of external data (no FT01 at byte 4)"
