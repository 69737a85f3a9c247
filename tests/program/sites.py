"""Locations of the numbers in a file, for tests that change them.

The module walks the tables by the schema, and trusts the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from etdev.program.flat_tensor.schema import FLAT_TENSOR
from etdev.program.schema import PROGRAM, Data, Field, Many, One, RawBytes, Scalar, Scalars, Table, Text, Union


@dataclass(frozen=True, slots=True)
class Site:
    """Number in a file."""

    path: str
    """Path of the field that it belongs to."""
    kind: str
    """``offset``, ``length``, ``tag``, ``number``, or one of three kinds about a vtable.

    ``vtable``: a table's offset to its vtable. ``entry``: the vtable's length, or the place of a field. ``size``: the
    size of a table, in its vtable.
    """
    position: int
    code: str
    """Format of the ``struct`` module."""

    def write(self, content: bytearray, value: int) -> None:
        """Write a number, truncated to its width."""
        width = struct.calcsize(self.code)
        content[self.position : self.position + width] = (value % (1 << (8 * width))).to_bytes(width, "little")

    def read(self, content: bytes | bytearray) -> int:
        """Return the number, as if unsigned."""
        width = struct.calcsize(self.code)
        return int.from_bytes(content[self.position : self.position + width], "little")


def file_sites(content: bytes) -> list[Site]:
    """Return all sites of a ``.pte`` or ``.ptd``, with those of its header."""
    is_data = content[4:8] == b"FT01"
    return [*header_sites(content), *sites(content, FLAT_TENSOR if is_data else PROGRAM)]


def sites(content: bytes, table: Table = PROGRAM) -> list[Site]:
    """Return all sites of a file's flatbuffer."""
    found = [Site("root", "offset", 0, "I")]
    found += _table(content, table, _u32(content, 0), "")
    return found


def header_sites(content: bytes) -> list[Site]:
    """Return the sites of the header, if the file has one."""
    if content[8:12] == b"FH01":
        names = ("flatbuffer_offset", "flatbuffer_size", "segment_base_offset", "segment_data_size")
        numbers = [Site(f"header.{name}", "number", 16 + 8 * place, "Q") for place, name in enumerate(names)]
        return [Site("header.length", "number", 12, "I"), *numbers]
    if content[8:12] != b"eh00":
        return []
    return [
        Site("header.length", "number", 12, "I"),
        Site("header.program_size", "number", 16, "Q"),
        Site("header.segment_base_offset", "number", 24, "Q"),
        *([Site("header.segment_data_size", "number", 32, "Q")] if _u32(content, 12) >= 32 else []),
    ]


def _u32(content: bytes, position: int) -> int:
    return int.from_bytes(content[position : position + 4], "little")


def _table(content: bytes, table: Table, position: int, path: str) -> Iterator[Site]:
    vtable = position - struct.unpack_from("<i", content, position)[0]
    count = struct.unpack_from("<H", content, vtable)[0] // 2 - 2
    yield Site(path, "vtable", position, "i")
    yield Site(path, "entry", vtable, "H")
    yield Site(path, "size", vtable + 2, "H")
    for field in table.fields:
        place = struct.unpack_from("<H", content, vtable + 4 + 2 * field.number)[0] if field.number < count else 0
        if place:
            inner = path if table.wrapper else f"{path}.{field.name}".removeprefix(".")
            yield Site(inner, "entry", vtable + 4 + 2 * field.number, "H")
            yield from _field(content, field, position, vtable, inner)


def _field(content: bytes, field: Field, table: int, vtable: int, path: str) -> Iterator[Site]:
    place = table + struct.unpack_from("<H", content, vtable + 4 + 2 * field.number)[0]
    match field.kind:
        case Scalar(code=code):
            yield Site(path, "number", place, code)
        case Union(tables=tables):
            yield Site(path, "tag", place, "B")
            member = tables[content[place] - 1]
            place = table + struct.unpack_from("<H", content, vtable + 6 + 2 * field.number)[0]
            yield Site(path, "offset", place, "I")
            yield from _table(content, member, place + _u32(content, place), f"{path}.{member.snake_name}")
        case kind:
            yield Site(path, "offset", place, "I")
            yield from _target(content, kind, place + _u32(content, place), path)


def _target(
    content: bytes, kind: Text | Scalars | RawBytes | Data | One | Many, position: int, path: str
) -> Iterator[Site]:
    if isinstance(kind, One):
        yield from _table(content, kind.table, position, path)
        return
    yield Site(path, "length", position, "I")
    count = _u32(content, position)
    match kind:
        case Scalars(element=element):
            for index in range(count):
                yield Site(f"{path}[{index}]", "number", position + 4 + index * element.width, element.code)
        case Many(table=table):
            for index in range(count):
                place = position + 4 + 4 * index
                yield Site(f"{path}[{index}]", "offset", place, "I")
                yield from _table(content, table, place + _u32(content, place), f"{path}[{index}]")
        case _:
            pass
