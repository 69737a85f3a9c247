"""Encoding of a program's tables as a flatbuffer. The same program always yields the same bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from etdev.program.blob import Blob
from etdev.program.flaw import FlawError
from etdev.program.schema import Absence, Data, Field, Many, One, RawBytes, Scalar, Scalars, Table, Text, Union

if TYPE_CHECKING:
    from flatbuffers import Builder

_START_SIZE = 1 << 16


def encode(table: Table, value: Any, *, identifier: bytes, inline_alignment: int) -> tuple[bytearray, int]:
    """Return a flatbuffer with the root ``value``, and the alignment that the flatbuffer needs in the file.

    ``identifier`` is the four bytes after the root offset.
    """
    from flatbuffers.builder import BuilderSizeError

    encoder = _Encoder(inline_alignment)
    try:
        return encoder.finish(encoder.table(table, value), identifier)
    except BuilderSizeError:
        raise FlawError("tables and inline data exceed 2 GiB, the limit of a flatbuffer") from None


class _Encoder:
    """Encoder that writes objects from the innermost to the outermost.

    It builds the flatbuffer from its end to its beginning. So an offset here is the number of bytes from an object to
    the end of the finished flatbuffer.
    """

    def __init__(self, inline_alignment: int) -> None:
        from flatbuffers import Builder

        self._builder: Builder = Builder(_START_SIZE)
        self._inline_alignment = inline_alignment

    def finish(self, root: int, identifier: bytes) -> tuple[bytearray, int]:
        """Finish the flatbuffer. Return its bytes, and the largest alignment of any object inside."""
        self._builder.Finish(root, identifier)
        content: bytearray = self._builder.Output()
        return content, self._builder.minalign

    def table(self, table: Table, value: Any) -> int:
        """Write an object and all objects that it refers to. Return the object's offset."""
        numbers: list[tuple[int, bytes]] = []
        offsets: list[tuple[int, int]] = []
        for field, item in zip(table.fields, table.split(value), strict=True):
            try:
                self._field(field, item, numbers, offsets)
            except FlawError as flaw:
                raise flaw.within(*(() if table.wrapper else (field.name,))) from None
        builder = self._builder
        builder.StartObject(table.slots)
        # Widest first, so that no padding is needed between them.
        numbers.sort(key=lambda entry: len(entry[1]), reverse=True)
        for number, packed in (entry for entry in numbers if len(entry[1]) > 4):
            self._place(number, packed)
        for number, offset in offsets:
            builder.PrependUOffsetTRelative(offset)
            builder.Slot(number)
        for number, packed in (entry for entry in numbers if len(entry[1]) <= 4):
            self._place(number, packed)
        end: int = builder.EndObject()
        return end

    def _place(self, number: int, packed: bytes) -> None:
        self._builder.Prep(len(packed), 0)
        self._prepend(packed)
        self._builder.Slot(number)

    def _prepend(self, content: bytes | memoryview) -> None:
        """Write bytes before all earlier content. The builder must have reserved the space."""
        builder = self._builder
        end = builder.head
        builder.head = end - len(content)
        builder.Bytes[builder.head : end] = content

    def _field(self, field: Field, item: Any, numbers: list[tuple[int, bytes]], offsets: list[tuple[int, int]]) -> None:
        """Write the object that a field refers to. Add the field's entry in the table to ``numbers`` or ``offsets``."""
        match field.kind:
            case Scalar() as scalar:
                packed = _pack(scalar, (item,))
                # Compare bytes, since -0.0 == 0.0 but is not the default.
                if packed != scalar.packed_default:
                    numbers.append((field.number, packed))
            case Union() as union:
                tag = union.tag_of(item)
                offsets.append((field.number + 1, self._member(union.tables[tag - 1], item)))
                numbers.append((field.number, bytes([tag])))
            case kind:
                if item is None and field.absence is not Absence.OMITTED:
                    raise FlawError("missing")
                if item is not None and (item != () or field.absence is not Absence.OMITTED):
                    offsets.append((field.number, self._target(kind, item)))

    def _member(self, table: Table, item: Any) -> int:
        try:
            return self.table(table, item)
        except FlawError as flaw:
            raise flaw.within(table.snake_name) from None

    # Objects that offsets point to

    def _target(self, kind: Text | Scalars | RawBytes | Data | One | Many, item: Any) -> int:
        match kind:
            case Text():
                return self._text(item)
            case Scalars(element=element):
                return self._vector(_pack(element, item), element.width, element.width)
            case RawBytes():
                return self._vector(item, 1, 1)
            case Data():
                return self._data(item)
            case One(table=table):
                return self.table(table, item)
            case Many(table=table):
                return self._tables(table, item)

    def _vector(self, packed: bytes | memoryview, width: int, alignment: int) -> int:
        self._builder.StartVector(width, len(packed) // width, alignment)
        self._prepend(packed)
        offset: int = self._builder.EndVector()
        return offset

    def _data(self, blob: Blob) -> int:
        return self._vector(blob.view, 1, self._inline_alignment if len(blob) else 1)

    def _text(self, text: str) -> int:
        try:
            offset: int = self._builder.CreateString(text)
        except UnicodeEncodeError as error:
            raise FlawError(f"the string {text!r} cannot be encoded as UTF-8 ({error.reason})") from None
        return offset

    def _tables(self, table: Table, items: tuple[Any, ...]) -> int:
        offsets = []
        for index, item in enumerate(items):
            try:
                offsets.append(self.table(table, item))
            except FlawError as flaw:
                raise flaw.within(f"[{index}]") from None
        builder = self._builder
        builder.StartVector(4, len(offsets), 4)
        # An element of the vector is the distance from the element to its table.
        element = builder.Offset() + 4 * len(offsets)
        distances = [element - 4 * index - offset for index, offset in enumerate(offsets)]
        self._prepend(struct.pack(f"<{len(distances)}I", *distances))
        end: int = builder.EndVector()
        return end


def _pack(scalar: Scalar, items: tuple[Any, ...]) -> bytes:
    if scalar.choices is not None:
        for item in items:
            if item not in scalar.choices:
                raise FlawError(f"expected {scalar.what}, found {item!r}")
    try:
        return struct.pack(f"<{len(items)}{scalar.code}", *items)
    except struct.error as error:
        raise FlawError(f"{items[0]!r}: {error}" if len(items) == 1 else str(error)) from None
