"""Problems in CSV format with one buffer per line, the format of published problem instances.

The first line names the columns, in any order. ``lower`` (or ``start``) is the first instant at which a buffer is in
use. ``upper`` (or ``end``) is the first instant at which the buffer is no longer in use. ``size`` is in bytes. The
columns ``id``, ``alignment`` and ``offset`` (or ``pin``, the required offset) are optional. Other columns are ignored.
Values of ``alignment`` and ``offset`` may be empty.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence

from etdev.planner.problem import Buffer

_NAMES = {"start": "lower", "begin": "lower", "end": "upper", "pin": "offset", "name": "id"}
"""Maps each alternative name of a column to the name that is used here."""
_REQUIRED = ("lower", "upper", "size")


class CsvError(ValueError):
    """Error for a text that is not a valid problem. The message states the line."""


def read_buffers(lines: Iterable[str], alignment: int = 1) -> list[Buffer]:
    """Return the buffers in the order of the lines.

    The name of a buffer is its ``id``. Without that column, the name is the buffer's number, from 0. ``alignment``
    applies to buffers that state no alignment. Raises :class:`CsvError` for the first invalid line.
    """
    reader = csv.reader(lines, skipinitialspace=True)
    buffers: list[Buffer] = []
    ids: dict[str, int] = {}
    columns: dict[str, int] | None = None
    for row in _rows(reader):
        if columns is None:
            columns = _find_columns(row, reader.line_num)
            continue
        if len(row) < max(columns.values()) + 1:
            raise CsvError(f"line {reader.line_num}: expected {max(columns.values()) + 1} values, found {len(row)}")
        name = row[columns["id"]] if "id" in columns else str(len(buffers))
        if name in ids:
            raise CsvError(f"line {reader.line_num}: the id {name!r} is already in line {ids[name]}")
        ids[name] = reader.line_num
        buffers.append(_read_buffer(row, columns, name, alignment, reader.line_num))
    if columns is None:
        raise CsvError("the line with the column names is missing; expected id,lower,upper,size")
    return buffers


def _rows(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells) and not cells[0].startswith("#"):
                yield cells
    except csv.Error as error:
        raise CsvError(f"line {getattr(reader, 'line_num', 0)}: {error}") from error


def _find_columns(row: Sequence[str], line: int) -> dict[str, int]:
    columns: dict[str, int] = {}
    for place, cell in enumerate(row):
        name = cell.removeprefix("\ufeff").lower()
        name = _NAMES.get(name, name)
        if name in columns:
            raise CsvError(f"line {line}: there are two columns {name!r}")
        columns[name] = place
    missing = [name for name in _REQUIRED if name not in columns]
    if missing:
        raise CsvError(f"line {line}: there is no column {', '.join(missing)}; found {', '.join(columns)}")
    return {name: columns[name] for name in ("id", *_REQUIRED, "alignment", "offset") if name in columns}


def _read_buffer(row: Sequence[str], columns: Mapping[str, int], name: str, alignment: int, line: int) -> Buffer:
    numbers: dict[str, int | None] = {}
    for column, place in columns.items():
        if column != "id":
            optional = column not in _REQUIRED
            numbers[column] = None if optional and not row[place] else _read_number(row[place], column, line)
    lower, upper, size = (numbers[column] or 0 for column in _REQUIRED)
    own = numbers.get("alignment")
    buffer = Buffer(size, lower, upper, alignment if own is None else own, numbers.get("offset"), name)
    if buffer.flaw:
        raise CsvError(f"line {line}: the buffer {name!r} {buffer.flaw}")
    return buffer


def _read_number(text: str, column: str, line: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise CsvError(f"line {line}: {column}: expected an integer, found {text!r}") from None
