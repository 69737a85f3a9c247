"""Structural decoding of untrusted flatbuffers. Every offset is checked before it is followed.

This module checks offsets, lengths, alignment, tags, enums and strings. :mod:`etdev.program.check` checks the meaning
of the numbers.

All offsets point forward, except a table's offset to its vtable, and the schema is not recursive. So decoding cannot
loop. But a hostile file can point to the same bytes many times. So the decoder limits the number of decoded bytes to a
multiple of the file's size.

Format: https://flatbuffers.dev/internals/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct, calcsize, unpack_from
from typing import Any, TypeAlias

from etdev.program.blob import Blob
from etdev.program.flaw import FlawError
from etdev.program.schema import Absence, Data, Field, Many, One, RawBytes, Scalar, Scalars, Table, Text, Union

SHARING = 4
"""Maximum number of decoded bytes per byte of the file. Shared bytes count each time they are decoded.

A file whose objects share more bytes is refused. In files of known writers, objects share only vtables, so these files
stay far below the limit.
"""
MOST_DECODED = 32 << 20
"""Maximum number of decoded bytes of tables, vectors and strings.

The decoded objects take up to ten times as much memory. Data that stays in the file does not count. 4,000 instructions
are about 400 kB.
"""
MOST_LAYOUTS = 4096
"""Limit on distinct table layouts in a file. ExecuTorch's files have about 30."""
_MOST_REMEMBERED = 1 << 16
"""Maximum number of vtables whose layout is cached by position.

Writers that share vtables write one vtable per layout, so their files have few vtables.
"""

_UOFFSET = Struct("<I")
_SOFFSET = Struct("<i")
_VTABLE_HEAD = Struct("<HH")

_Numbers: TypeAlias = tuple[Any, ...]
_Read: TypeAlias = Callable[[_Numbers, int], Any]
"""Function that reads a field of a table. It takes a tuple of the table's numbers, and the table's position."""
_Target: TypeAlias = Callable[[int], Any]
"""Function that decodes the object at a position. The position is inside the file and a multiple of 4."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Decoding plan for tables of one layout: the parsed form of a vtable."""

    numbers: Struct
    """Format of all numbers and offsets that are stored in the table itself, in the order of their places."""
    size: int
    """Number of bytes from the table's start to the end of its last known field."""
    eight: int | None
    """Required position of the table, modulo 8, to align its 8-byte numbers; None for a table without such numbers."""
    defaults: tuple[Any, ...]
    """Value of each field in a table that lacks the field."""
    plain: tuple[tuple[int, int], ...]
    """Fields that are present and are plain numbers, as pairs: index of the field, index in ``numbers``."""
    others: tuple[tuple[int, _Read], ...]
    """All other fields that are present, as pairs: index of the field, function that reads the field."""


class Decoder:
    """Decoder of one flatbuffer."""

    def __init__(self, data: Blob) -> None:
        self._blob = data
        self._data = data.view
        self._end = len(data)
        self._left = min(SHARING * len(data), MOST_DECODED)
        self._plans: dict[tuple[Table, int], _Plan] = {}
        """Maps the type of a table and the position of its vtable to the plan for decoding the table."""
        self._layouts: dict[tuple[Table, bytes], _Plan] = {}
        """Maps the type of a table and the content of its vtable to the plan for decoding the table."""
        self.unknown: dict[str, None] = {}
        """Fields that the schema does not know, such as ``Tensor: field 10``, in the order of discovery."""
        self.data_places: list[int] = []
        """Position in the file of each nonempty blob. The decoder does not copy the data of blobs."""

    def root(self, table: Table, start: int) -> Any:
        """Decode the root object. Its offset is at byte 0, and the object must be at byte ``start`` or later."""
        target = self._follow(0, _UOFFSET.unpack_from(self._data)[0])
        if target < start:
            raise FlawError(f"the root table is at byte {target}, inside the header of {start} bytes")
        return self._table(table, target)

    def _follow(self, position: int, offset: int) -> int:
        """Return the position to which the offset at ``position`` points."""
        target = position + offset
        if target + 4 > self._end:
            raise FlawError(
                f"the offset at byte {position} points to byte {target}, but the flatbuffer ends at byte {self._end}"
            )
        if target & 3 or not offset:
            raise FlawError(f"the offset at byte {position} points to byte {target}, which is not a valid position")
        return target

    def _charge(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise FlawError(f"the tables and vectors exceed {MOST_DECODED >> 20} MiB, or too many of them share bytes")

    # Tables

    def _table(self, table: Table, position: int) -> Any:
        vtable = position - _SOFFSET.unpack_from(self._data, position)[0]
        plan = self._plans.get((table, vtable))
        if plan is None:
            plan = self._layout(table, vtable)
        if position + plan.size > self._end:
            raise FlawError(f"the table at byte {position} reaches past the end at byte {self._end}")
        if plan.eight is not None and position & 7 != plan.eight:
            raise FlawError(f"the table at byte {position} has numbers that are not aligned to 8 bytes")
        self._charge(plan.size)
        numbers = plan.numbers.unpack_from(self._data, position)
        values = list(plan.defaults)
        for index, number in plan.plain:
            values[index] = numbers[number]
        for index, read in plan.others:
            try:
                values[index] = read(numbers, position)
            except FlawError as flaw:
                raise flaw.within(*_in_path(table, table.fields[index])) from None
        return table.make(*values)

    def _layout(self, table: Table, vtable: int) -> _Plan:
        content = self._vtable(vtable)
        self._charge(len(content))
        plan = self._layouts.get((table, content))
        if plan is None:
            if len(self._layouts) == MOST_LAYOUTS:
                raise FlawError(f"the tables have more than {MOST_LAYOUTS} different layouts")
            plan = self._layouts[table, content] = self._plan(table, content)
        if len(self._plans) < _MOST_REMEMBERED:
            self._plans[table, vtable] = plan
        return plan

    def _vtable(self, vtable: int) -> bytes:
        """Return the content of a vtable: its length, the length of its table, and the places of fields in the table.

        The table's length is not reliable: Python's flatbuffers before 25.12 share vtables between tables of different
        lengths.
        """
        if vtable & 1 or not 0 <= vtable <= self._end - _VTABLE_HEAD.size:
            raise FlawError(f"byte {vtable} of {self._end} is not a valid position for a vtable")
        length, _ = _VTABLE_HEAD.unpack_from(self._data, vtable)
        if length & 1 or length < _VTABLE_HEAD.size or vtable + length > self._end:
            raise FlawError(f"the vtable at byte {vtable} cannot have {length} bytes")
        return bytes(self._data[vtable : vtable + length])

    def _plan(self, table: Table, vtable: bytes) -> _Plan:
        _, _, *entries = unpack_from(f"<{len(vtable) // 2}H", vtable)
        for number in range(table.slots, len(entries)):
            if entries[number]:
                self.unknown[f"{table.name}: field {number}"] = None
        layout = _Layout()
        there: list[tuple[int, Field, list[int]]] = []
        for index, field in enumerate(table.fields):
            try:
                places = [layout.add(entries[n], code) if n < len(entries) else 0 for n, code in _entries(field)]
                if places[0]:
                    there.append((index, field, places))
                elif field.absence is Absence.REFUSED:
                    raise FlawError("missing")
            except FlawError as flaw:
                raise flaw.within(*_in_path(table, field)) from None
        numbers, order = layout.numbers()
        return _Plan(
            numbers=numbers,
            size=max(numbers.size, _SOFFSET.size),
            eight=layout.eight,
            defaults=tuple(_default(field) for field in table.fields),
            plain=tuple((index, order[places[0]]) for index, field, places in there if _is_plain(field)),
            others=tuple(
                (index, self._reader(field, places, order)) for index, field, places in there if not _is_plain(field)
            ),
        )

    def _reader(self, field: Field, places: list[int], order: dict[int, int]) -> _Read:
        first, place = order[places[0]], places[0]
        match field.kind:
            case Scalar() as scalar:
                return lambda numbers, _: _choose(scalar, numbers[first])
            case Union() as union:
                return self._union(union, first, places[1], order.get(places[1]))
            case kind:
                target = self._target(kind)
                return lambda numbers, position: target(self._follow(position + place, numbers[first]))

    def _union(self, union: Union, tag: int, place: int, content: int | None) -> _Read:
        tables, snake = union.tables, [table.snake_name for table in union.tables]

        def read(numbers: _Numbers, position: int) -> Any:
            number = numbers[tag] - 1
            if not 0 <= number < len(tables):
                raise FlawError(f"{numbers[tag]} is not a valid tag of this union")
            table = tables[number]
            if content is None:
                if not table.fields:
                    return table.make()
                raise FlawError("missing", snake[number])
            try:
                return self._table(table, self._follow(position + place, numbers[content]))
            except FlawError as flaw:
                raise flaw.within(snake[number]) from None

        return read

    # Objects that offsets point to

    def _target(self, kind: Text | Scalars | RawBytes | Data | One | Many) -> _Target:
        match kind:
            case Text():
                return self._text
            case Scalars(element=element, limit=limit):
                return lambda position: self._scalars(element, limit, position)
            case RawBytes():
                return self._bytes
            case Data():
                return self._data_blob
            case One(table=table):
                return lambda position: self._table(table, position)
            case Many(table=table):
                return lambda position: self._tables(table, position)

    def _vector(self, position: int, width: int) -> tuple[int, int]:
        """Return the position of a vector's first element, and the number of elements.

        Raises :class:`FlawError` if an element is outside of the file.
        """
        (count,) = _UOFFSET.unpack_from(self._data, position)
        start = position + 4
        if start + count * width > self._end:
            raise FlawError(
                f"{count} elements of {width} bytes that start at byte {start} extend past the end at byte {self._end}"
            )
        if start % width:
            raise FlawError(f"the elements at byte {start} are not aligned to {width} bytes")
        return start, count

    def _scalars(self, element: Scalar, limit: int | None, position: int) -> tuple[Any, ...]:
        width = element.width
        start, count = self._vector(position, width)
        if limit is not None and count > limit:
            raise FlawError(f"expected at most {limit} elements, found {count}")
        self._charge(4 + count * width)
        if element.choices is None:
            return unpack_from(f"<{count}{element.code}", self._data, start)
        # Only bools come here. They take eight bytes each in a tuple, so do not make a second tuple to check them.
        content = bytes(self._data[start : start + count])
        for wrong in content.translate(None, bytes(element.choices))[:1]:
            _choose(element, wrong)
        return tuple(map(element.choices.__getitem__, content))

    def _bytes(self, position: int) -> bytes:
        start, count = self._vector(position, 1)
        self._charge(4 + count)
        return bytes(self._data[start : start + count])

    def _data_blob(self, position: int) -> Blob:
        start, count = self._vector(position, 1)
        if count:
            self.data_places.append(start)
        return self._blob.cut(start, count)

    def _text(self, position: int) -> str:
        content = self._bytes(position)
        end = position + 4 + len(content)
        if end >= self._end or self._data[end]:
            raise FlawError(f"the string at byte {position} does not end with a zero byte")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FlawError(f"the string at byte {position} is not UTF-8 ({error.reason})") from None

    def _tables(self, table: Table, position: int) -> tuple[Any, ...]:
        start, count = self._vector(position, 4)
        self._charge(4 + count * 4)
        found = []
        for index, offset in enumerate(unpack_from(f"<{count}I", self._data, start)):
            try:
                found.append(self._table(table, self._follow(start + 4 * index, offset)))
            except FlawError as flaw:
                raise flaw.within(f"[{index}]") from None
        return tuple(found)


class _Layout:
    """Layout of the numbers and offsets that are stored in a table itself."""

    def __init__(self) -> None:
        self._codes: dict[int, str] = {}
        self.eight: int | None = None

    def add(self, place: int, code: str) -> int:
        """Record the place and the struct code of a field. Return the place, or 0 for an absent field."""
        width = calcsize(code)
        if not place:
            return 0
        if place < _SOFFSET.size:
            raise FlawError(f"the field is at byte {place} of the table, inside the offset that leads to the vtable")
        # A table starts at a multiple of 4. So a field of up to 4 bytes is aligned if its place in the table is.
        if place % min(width, 4) or (width == 8 and self.eight not in (None, -place & 7)):
            raise FlawError(f"the field is at byte {place} of the table, which is not aligned to {width} bytes")
        if width == 8:
            self.eight = -place & 7
        if place in self._codes:
            raise FlawError(f"another field is also at byte {place} of the table")
        self._codes[place] = code
        return place

    def numbers(self) -> tuple[Struct, dict[int, int]]:
        """Return a struct that unpacks all numbers, and a map from each number's place to its index in the result."""
        pieces, order, end = ["<"], {}, 0
        for index, (place, code) in enumerate(sorted(self._codes.items())):
            if place < end:
                raise FlawError(f"two fields share byte {place} of the table")
            pieces.append(f"{place - end}x{code}")
            order[place], end = index, place + calcsize(code)
        return Struct("".join(pieces)), order


def _entries(field: Field) -> Iterator[tuple[int, str]]:
    """Yield a pair for each vtable entry of a field: number and struct code of the entry. A union has two entries."""
    match field.kind:
        case Scalar(code=code):
            yield field.number, code
        case Union():
            yield field.number, "B"
            yield field.number + 1, "I"
        case _:
            yield field.number, "I"


def _is_plain(field: Field) -> bool:
    return isinstance(field.kind, Scalar) and field.kind.choices is None


def _default(field: Field) -> Any:
    match field.kind:
        case Scalar() as scalar:
            return _choose(scalar, scalar.default)
        case Text():
            return None if field.absence is Absence.OMITTED else ""
        case Data():
            return Blob()
        case Scalars() | Many():
            return ()
        case _:
            return None


def _choose(scalar: Scalar, number: Any) -> Any:
    if scalar.choices is None:
        return number
    try:
        return scalar.choices[number]
    except KeyError:
        raise FlawError(f"expected {scalar.what}, found {number}") from None


def _in_path(table: Table, field: Field) -> tuple[str, ...]:
    return () if table.wrapper else (field.name,)
