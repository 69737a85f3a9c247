"""Layers of a config, and the function that merges two layers.

The merge combines tables key by key. It replaces all other values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from etdev.config.keys import KeyPath, format_key
from etdev.config.parsing.document import Document, Position
from etdev.errors import Problem

LayerName = Literal["extends", "file", "profile", "environment", "command line"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of a value: a file (with the value's position), a variable or an option."""

    layer: LayerName
    source: str
    """Source of the value: the path of a file, ``environment variable ETDEV__X``, or ``--set x=1``.

    A path is relative to the working folder if the file is inside that folder.
    """
    base: Path
    """Folder to which relative paths and module names in the value refer."""
    line: int | None = None
    column: int | None = None

    @property
    def place(self) -> str:
        """Location of the value: ``file:line:column``, or the name of the variable or option."""
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"

    def problem(self, key: KeyPath, message: str, rule: str, hint: str | None) -> Problem:
        """Return a problem at the location of this value."""
        return Problem(message, format_key(key), self.source, self.line, self.column, hint, rule)


@dataclass(frozen=True, slots=True)
class Mark:
    """Origin of a value, the position of the value's key in the file, and the key as written."""

    origin: Origin
    key: Position | None = None
    written: KeyPath = ()
    """Key as the user wrote it. For a value in a profile, the key begins with ``profiles.NAME``."""
    as_text: bool = False
    """True for an override whose value is not valid TOML and was therefore read as plain text."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Data from one source. Each table, list element and value in the data has a mark."""

    data: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[KeyPath, Mark] = field(default_factory=dict)


def file_layer(document: Document, name: LayerName, source: str, base: Path) -> Layer:
    """Return a document as a layer. ``base`` is the folder that contains the document's file."""
    marks = {
        path: Mark(Origin(name, source, base, *place.value), place.key, path) for path, place in document.places.items()
    }
    return Layer(document.data, marks)


NOT_IN_PROFILES = ("version", "extends", "profiles")


def single_value_layer(path: KeyPath, value: object, mark: Mark) -> Layer:
    """Return a layer with one key, for an environment variable or a ``--set``."""
    data: Any = value
    for part in reversed(path):
        data = {part: data}
    marks = {path[:length]: replace(mark, written=path[:length]) for length in range(1, len(path))}
    for inner in paths_of(value, path):
        marks[inner] = replace(mark, written=inner)
    return Layer(data, marks)


def overlay(below: Layer, above: Layer) -> Layer:
    """Return the merge of two layers. If both layers have a value for a key, use the value from ``above``."""
    marks = dict(below.marks)
    data = _merge((), below.data, above.data, marks, above.marks)
    if () in above.marks:
        marks[()] = above.marks[()]
    return Layer(data, marks)


def _merge(
    path: KeyPath,
    below: Mapping[str, Any],
    above: Mapping[str, Any],
    marks: dict[KeyPath, Mark],
    above_marks: Mapping[KeyPath, Mark],
) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        inner = (*path, key)
        before = below.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            mark = above_marks.get(inner)
            # Authors look for a table in the file that has it. Profiles and overrides only add to such a table.
            if mark is not None and (inner not in marks or mark.origin.layer in ("extends", "file")):
                marks[inner] = mark
            merged[key] = _merge(inner, before, value, marks, above_marks)
            continue
        for stale in paths_of(before, inner):
            marks.pop(stale, None)
        for fresh in paths_of(value, inner):
            if fresh in above_marks:
                marks[fresh] = above_marks[fresh]
        merged[key] = value
    return merged


def paths_of(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of a value, then the paths of all values inside this value."""
    yield path
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from paths_of(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths_of(item, (*path, index))


def lookup(data: object, path: KeyPath) -> tuple[bool, Any]:
    """Look up a path in raw data. Return ``(True, value)``, or ``(False, None)`` if the path does not exist."""
    for part in path:
        if isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
            continue
        if not isinstance(data, Mapping) or part not in data:
            return False, None
        data = data[part]
    return True, data


def mark_of(marks: Mapping[KeyPath, Mark], path: KeyPath) -> Mark | None:
    """Return the mark of a value, or of the innermost enclosing table that has a mark; None if there is no mark."""
    for length in range(len(path), -1, -1):
        if path[:length] in marks:
            return marks[path[:length]]
    return None
