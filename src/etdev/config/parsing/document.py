"""Data of one config file, and the positions of all its keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from etdev.config.keys import KeyPath
from etdev.errors import ConfigError, Problem

MAX_BYTES = 1 << 18
"""Maximum size of a config file, in bytes."""
MAX_DEPTH = 32
"""Maximum nesting of tables and lists."""


class Position(NamedTuple):
    """Position in a text: line and column, both from 1; the column is in characters."""

    line: int
    column: int


class Place(NamedTuple):
    """Positions of a key and of its value in a file.

    For a list element, ``key`` is the position of the element. Tables from a header, a dotted key or a YAML block have
    no braces. For such a table, ``value`` is the position of the header or of the key.
    """

    key: Position
    value: Position


START = Place(Position(1, 1), Position(1, 1))


@dataclass(frozen=True, slots=True)
class Document:
    """Data and positions of a config file, or of one table in a file."""

    data: dict[str, Any]
    places: Mapping[KeyPath, Place]
    """Positions of every table, list element and value. The key ``()`` maps to the position of the whole document."""


def refuse(source: str, message: str, position: Position | None, *, rule: str, hint: str | None = None) -> ConfigError:
    """Return the error for a file that cannot be read as a config."""
    line, column = position or (None, None)
    return ConfigError((Problem(message, "", source, line, column, hint, rule),))
