"""Encoding of a program's tables as a flatbuffer. The same program always yields the same bytes.

Python's package ``flatbuffers`` builds the same bytes, but takes several times as long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from etdev.program.blob import Blob
from etdev.program.flaw import FlawError
from etdev.program.schema import (
    Absence,
    Data,
    Field,
    Kind,
    Many,
    One,
    RawBytes,
    Scalar,
    Scalars,
    Table,
    Text,
    Union,
)

_LIMIT = 1 << 31
"""Maximum number of bytes of a flatbuffer."""
_WIDEST = 8
"""Width of the widest number in a table, in bytes."""
_LENGTH = struct.Struct("<I")


def encode(table: Table, value: Any, *, identifier: bytes, inline_alignment: int) -> tuple[bytearray, int]:
    """Return a flatbuffer with the root ``value``, and the alignment that the flatbuffer needs in the file.

    ``identifier`` is the four bytes after the root offset.
    """
    encoder = _Encoder(inline_alignment)
    return encoder.finish(encoder.table(table, value), identifier)


class _Layout(NamedTuple):
    """Byte layout of an object with certain fields.

    The layout also depends on the number of bytes after the object, modulo 8, because numbers must be aligned.
    """

    packer: struct.Struct
    """Packs the distance to the vtable, then the fields ``small``, ``references`` and ``wide``, in this order."""
    small: tuple[int, ...]
    """Indices of the numbers that have up to four bytes. The packer gets each number as bytes."""
    references: tuple[tuple[int, int], ...]
    """Pairs: index of a reference to another object, number of bytes from the reference to this object's end."""
    wide: tuple[int, ...]
    """Indices of the numbers that have more than four bytes."""
    vtable: bytes
    alignment: int


class _Encoder:
    """Encoder that writes objects from the innermost to the outermost.

    It builds the flatbuffer from its end to its beginning. So an offset here is the number of bytes from an object to
    the end of the finished flatbuffer.
    """

    def __init__(self, inline_alignment: int) -> None:
        self._parts: list[bytes | memoryview] = []
        """Parts of the flatbuffer, from its end to its beginning."""
        self._size = 0
        self._alignment = 1
        self._inline_alignment = inline_alignment
        self._layouts: dict[tuple[Table, int, int], _Layout] = {}
        self._vtables: dict[bytes, int] = {}
        """Maps the bytes of a vtable to its offset."""
        self._writers: dict[type[Kind], Callable[[Any, Any], int]] = {
            Text: lambda _, text: self._text(text),
            Scalars: lambda kind, items: self._scalars(kind.element, items),
            RawBytes: lambda _, content: self._vector(content, len(content), 1),
            Data: lambda _, blob: self._data(blob),
            One: lambda kind, item: self.table(kind.table, item),
            Many: lambda kind, items: self._tables(kind.table, items),
        }
        """Maps a class of field kinds to a function, which writes a value as an object and returns its offset."""

    def finish(self, root: int, identifier: bytes) -> tuple[bytearray, int]:
        """Finish the flatbuffer. Return its bytes, and the largest alignment of any object inside."""
        self._align(max(self._alignment, 4), 4 + len(identifier))
        self._put(identifier)
        self._put(_LENGTH.pack(self._size + 4 - root))
        return bytearray().join(reversed(self._parts)), self._alignment

    def table(self, table: Table, value: Any) -> int:
        """Write an object and all objects that it refers to. Return the object's offset."""
        numbers: list[bytes] = []
        references: list[int] = []
        written = 0
        for field, item in zip(table.fields, table.split(value), strict=True):
            try:
                if self._field(field, item, numbers, references):
                    written |= 1 << field.number
            except FlawError as flaw:
                raise flaw.within(*(() if table.wrapper else (field.name,))) from None
        return self._object(table, written, numbers, references)

    def _object(self, table: Table, written: int, numbers: list[bytes], references: list[int]) -> int:
        """Write an object. Return its offset.

        ``written`` has the bit ``1 << number`` for each field in the file. ``numbers`` has the bytes of the numbers
        among these fields, and ``references`` has the offsets of the objects that the other fields refer to.
        """
        end = self._size
        key = table, written, end % _WIDEST
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = _layout(*key)
        start = end + layout.packer.size
        vtable = self._vtables.get(layout.vtable)
        content = layout.packer.pack(
            (start + len(layout.vtable) if vtable is None else vtable) - start,
            *[numbers[index] for index in layout.small],
            *[end + place - references[index] for index, place in layout.references],
            *[numbers[index] for index in layout.wide],
        )
        if layout.alignment > self._alignment:
            self._alignment = layout.alignment
        self._put(content)
        if vtable is None:
            self._put(layout.vtable)
            self._vtables[layout.vtable] = self._size
        return start

    def _field(self, field: Field, item: Any, numbers: list[bytes], references: list[int]) -> bool:
        """Add a field's number to ``numbers``, or write the field's object and add its offset to ``references``.

        Return False if the file omits the field.
        """
        kind = field.kind
        if isinstance(kind, Scalar):
            packed = _pack(kind, (item,))
            # Compare bytes, since -0.0 == 0.0 but is not the default.
            if packed == kind.packed_default:
                return False
            numbers.append(packed)
        elif isinstance(kind, Union):
            tag = kind.tag_of(item)
            references.append(self._member(kind.tables[tag - 1], item))
            numbers.append(bytes([tag]))
        elif item is None and field.absence is not Absence.OMITTED:
            raise FlawError("missing")
        elif item is None or (item == () and field.absence is Absence.OMITTED):
            return False
        else:
            references.append(self._writers[type(kind)](kind, item))
        return True

    def _member(self, table: Table, item: Any) -> int:
        try:
            return self.table(table, item)
        except FlawError as flaw:
            raise flaw.within(table.snake_name) from None

    # Objects that offsets point to

    def _scalars(self, element: Scalar, items: tuple[Any, ...]) -> int:
        return self._vector(_pack(element, items), len(items), element.width)

    def _vector(self, packed: bytes | memoryview, count: int, alignment: int) -> int:
        """Write a vector of ``count`` elements. Return its offset."""
        self._align(max(alignment, 4), len(packed))
        self._put(packed)
        self._put(_LENGTH.pack(count))
        return self._size

    def _data(self, blob: Blob) -> int:
        return self._vector(blob.view, len(blob), self._inline_alignment if len(blob) else 1)

    def _text(self, text: str) -> int:
        try:
            packed = text.encode()
        except UnicodeEncodeError as error:
            raise FlawError(f"the string {text!r} cannot be encoded as UTF-8 ({error.reason})") from None
        self._align(4, len(packed) + 1)
        self._put(packed + b"\0")
        self._put(_LENGTH.pack(len(packed)))
        return self._size

    def _tables(self, table: Table, items: tuple[Any, ...]) -> int:
        offsets = []
        for index, item in enumerate(items):
            try:
                offsets.append(self.table(table, item))
            except FlawError as flaw:
                raise flaw.within(f"[{index}]") from None
        self._align(4, 0)
        # An element of the vector is the distance from the element to its table.
        element = self._size + 4 * len(offsets)
        distances = [element - 4 * index - offset for index, offset in enumerate(offsets)]
        return self._vector(struct.pack(f"<{len(distances)}I", *distances), len(distances), 4)

    def _align(self, alignment: int, size: int) -> None:
        """Add zeros, so that the next ``size`` bytes will begin at a multiple of ``alignment``."""
        self._alignment = max(self._alignment, alignment)
        missing = -(self._size + size) % alignment
        if missing:
            self._put(bytes(missing))

    def _put(self, content: bytes | memoryview) -> None:
        """Put bytes in front of everything that was written earlier."""
        self._parts.append(content)
        self._size += len(content)
        if self._size > _LIMIT:
            raise FlawError("tables and inline data exceed 2 GiB, the limit of a flatbuffer")


def _layout(table: Table, written: int, after: int) -> _Layout:
    """Return the layout of a table's objects that have the fields in ``written``.

    ``written`` has the bit ``1 << number`` for each field in the file. ``after`` is the number of bytes after the
    object, modulo the width of the widest number.
    """
    numbers: list[tuple[int, int]] = []  # Number and width of each field with a number.
    references: list[int] = []
    for field in table.fields:
        if not written >> field.number & 1:
            continue
        if isinstance(field.kind, Scalar):
            numbers.append((field.number, field.kind.width))
        elif isinstance(field.kind, Union):
            numbers.append((field.number, 1))
            references.append(field.number + 1)
        else:
            references.append(field.number)
    # Widest first, so that no padding is needed between them. `sorted` keeps the order of equal widths.
    by_width = sorted(range(len(numbers)), key=lambda index: -numbers[index][1])
    wide = [(numbers[index][0], numbers[index][1], index) for index in by_width if numbers[index][1] > 4]
    small = [(numbers[index][0], numbers[index][1], index) for index in by_width if numbers[index][1] <= 4]
    offsets = [(number, 4, index) for index, number in enumerate(references)]
    size = after
    codes: list[str] = []  # From the end of the object to its beginning.
    places: dict[int, int] = {}
    for number, width, _ in (*wide, *offsets, *small):
        padding = -size % width
        size += padding + width
        codes += [f"{padding}x", "I" if number in references else f"{width}s"]
        places[number] = size
    padding = -size % 4
    size += padding + 4
    codes += [f"{padding}x", "<i"]
    entries = [size - places[number] if number in places else 0 for number in range(max(places, default=-1) + 1)]
    return _Layout(
        struct.Struct("".join(reversed(codes))),
        tuple(index for _, _, index in reversed(small)),
        tuple((index, places[number] - after) for number, _, index in reversed(offsets)),
        tuple(index for _, _, index in reversed(wide)),
        struct.pack(f"<{len(entries) + 2}H", 2 * (len(entries) + 2), size - after, *entries),
        max((4, *(width for _, width, _ in wide))),
    )


def _pack(scalar: Scalar, items: tuple[Any, ...]) -> bytes:
    if scalar.choices is not None:
        for item in items:
            if item not in scalar.choices:
                raise FlawError(f"expected {scalar.what}, found {item!r}")
    try:
        return struct.pack(f"<{len(items)}{scalar.code}", *items)
    except struct.error as error:
        raise FlawError(f"{items[0]!r}: {error}" if len(items) == 1 else str(error)) from None
