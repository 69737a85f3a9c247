"""The encoder yields the bytes of the builder of Python's package flatbuffers."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from flatbuffers import Builder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etdev.program import Program
from etdev.program import encode as encoder
from etdev.program.encode import encode
from etdev.program.flaw import FlawError
from etdev.program.header import IDENTIFIER
from etdev.program.schema import PROGRAM, Absence, Data, Field, Many, One, RawBytes, Scalar, Scalars, Table, Text, Union
from program import hand
from program.strategies import programs
from support.draws import examples


class _Reference:
    """The same encoding with the builder of flatbuffers."""

    def __init__(self, inline_alignment: int) -> None:
        self.builder = Builder(0)
        self._inline_alignment = inline_alignment

    def table(self, table: Table, value: Any) -> int:
        numbers: list[tuple[int, bytes]] = []
        offsets: list[tuple[int, int]] = []
        for field, item in zip(table.fields, table.split(value), strict=True):
            kind = field.kind
            if isinstance(kind, Scalar):
                packed = struct.pack(f"<{kind.code}", item)
                if packed != kind.packed_default:
                    numbers.append((field.number, packed))
            elif isinstance(kind, Union):
                tag = kind.tag_of(item)
                offsets.append((field.number + 1, self.table(kind.tables[tag - 1], item)))
                numbers.append((field.number, bytes([tag])))
            elif item is not None and (item != () or field.absence is not Absence.OMITTED):
                offsets.append((field.number, self._target(kind, item)))
        self.builder.StartObject(table.slots)
        numbers.sort(key=lambda entry: len(entry[1]), reverse=True)
        self._place([entry for entry in numbers if len(entry[1]) > 4])
        for number, offset in offsets:
            self.builder.PrependUOffsetTRelative(offset)
            self.builder.Slot(number)
        self._place([entry for entry in numbers if len(entry[1]) <= 4])
        end: int = self.builder.EndObject()
        return end

    def _place(self, numbers: list[tuple[int, bytes]]) -> None:
        for number, packed in numbers:
            self.builder.Prep(len(packed), 0)
            self._prepend(packed)
            self.builder.Slot(number)

    def _prepend(self, content: bytes) -> None:
        self.builder.head -= len(content)
        self.builder.Bytes[self.builder.head : self.builder.head + len(content)] = content

    def _target(self, kind: Any, item: Any) -> int:
        if isinstance(kind, One):
            return self.table(kind.table, item)
        if isinstance(kind, Text):
            return int(self.builder.CreateString(item))
        if isinstance(kind, Scalars):
            packed = struct.pack(f"<{len(item)}{kind.element.code}", *item)
            return self._vector(packed, kind.element.width, kind.element.width)
        if isinstance(kind, RawBytes):
            return self._vector(item, 1, 1)
        if isinstance(kind, Data):
            return self._vector(bytes(item.view), 1, self._inline_alignment if len(item) else 1)
        assert isinstance(kind, Many)
        offsets = [self.table(kind.table, one) for one in item]
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def _vector(self, packed: bytes, width: int, alignment: int) -> int:
        self.builder.StartVector(width, len(packed) // width, alignment)
        self._prepend(packed)
        return int(self.builder.EndVector())


def _fields(program: Program) -> dict[str, Any]:
    fields = {field.name: getattr(program, field.name) for field in PROGRAM.fields}
    return fields | {"segments": tuple((segment.offset, len(segment.data)) for segment in program.segments)}


def _check(table: Table, value: Any, inline_alignment: int = 16) -> None:
    reference = _Reference(inline_alignment)
    reference.builder.Finish(reference.table(table, value), IDENTIFIER)
    content, alignment = encode(table, value, identifier=IDENTIFIER, inline_alignment=inline_alignment)
    assert bytes(content) == bytes(reference.builder.Output())
    assert alignment == reference.builder.minalign


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_the_bytes_are_those_of_flatbuffers(program: Program) -> None:
    _check(PROGRAM, _fields(program), program.inline_alignment)


@pytest.mark.parametrize("make", [hand.loop, hand.unbounded, hand.everything], ids=lambda make: make.__name__)
def test_the_bytes_are_those_of_flatbuffers_by_hand(make: Any) -> None:
    _check(PROGRAM, _fields(make()))


_WIDTHS = Table(
    "Widths",
    lambda *values: values,
    lambda values: values,
    (
        Field(3, "byte", Scalar("b")),
        Field(0, "text", Text()),
        Field(5, "long", Scalar("q")),
        Field(1, "short", Scalar("H")),
        Field(4, "int", Scalar("i")),
        Field(2, "longs", Scalars(Scalar("q"))),
        Field(7, "double", Scalar("d")),
    ),
)
_PAIR = Table(
    "Pair",
    lambda *values: values,
    lambda values: values,
    (Field(0, "all", Many(_WIDTHS)), Field(1, "one", One(_WIDTHS), Absence.OMITTED)),
)


_WIDTHS_VALUES = st.tuples(
    st.integers(-2, 1),
    st.text(max_size=5),
    st.integers(-2, 1),
    st.integers(0, 2),
    st.integers(-2, 1),
    st.lists(st.integers(-2, 2), max_size=3).map(tuple),
    st.floats(),
)


@given(values=st.lists(_WIDTHS_VALUES, max_size=6), one=st.none() | _WIDTHS_VALUES)
def test_the_bytes_are_those_of_flatbuffers_with_fields_of_all_widths(values: list[Any], one: Any) -> None:
    _check(_PAIR, (tuple(values), one))


def test_a_flatbuffer_of_more_than_two_gib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content, _ = encode(PROGRAM, _fields(hand.loop()), identifier=IDENTIFIER, inline_alignment=16)
    monkeypatch.setattr(encoder, "_LIMIT", len(content))
    assert encode(PROGRAM, _fields(hand.loop()), identifier=IDENTIFIER, inline_alignment=16)[0] == content
    monkeypatch.setattr(encoder, "_LIMIT", len(content) - 1)
    with pytest.raises(FlawError, match="exceed 2 GiB, the limit of a flatbuffer"):
        encode(PROGRAM, _fields(hand.loop()), identifier=IDENTIFIER, inline_alignment=16)
