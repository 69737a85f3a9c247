"""Layers of a config and how one lies over another: tables merge, everything else is replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from etdev.config.document import Document, Position
from etdev.config.keys import KeyPath

LayerName = Literal["extends", "file", "profile", "environment", "command line"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from."""

    layer: LayerName
    source: str
    """The file as the user would name it, ``environment variable ETDEV__X``, or ``--set x=1``."""
    base: Path
    """Folder that relative paths and module names of this value are looked up in."""
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Origin of a value, and the place of its key."""

    origin: Origin
    key: Position | None = None
    written: KeyPath = ()
    """The key as it is written, which for a profile's value begins with ``profiles.NAME``."""
    as_text: bool = False
    """The value of an override that is not TOML and was taken as text."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Data with a mark for every table, list element and value in it."""

    data: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[KeyPath, Mark] = field(default_factory=dict)


def file_layer(document: Document, name: LayerName, source: str, base: Path) -> Layer:
    """A document as a layer; ``base`` is its file's folder."""
    marks = {
        path: Mark(Origin(name, source, base, *place.value), place.key, path) for path, place in document.places.items()
    }
    return Layer(document.data, marks)


NOT_IN_PROFILES = ("version", "extends", "profiles")


def single_value_layer(path: KeyPath, value: object, mark: Mark) -> Layer:
    """A layer that states one key, as an environment variable or a ``--set`` does."""
    data: Any = value
    for part in reversed(path):
        data = {part: data}
    marks = {path[:length]: replace(mark, written=path[:length]) for length in range(1, len(path))}
    for inner in paths_of(value, path):
        marks[inner] = replace(mark, written=inner)
    return Layer(data, marks)


def overlay(below: Layer, above: Layer) -> Layer:
    """``above`` wins; tables of both merge."""
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
            # A file's table is where its author looks for it; the other layers only add to tables.
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
    """The path of a value and of everything in it."""
    yield path
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from paths_of(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths_of(item, (*path, index))


def lookup(data: object, path: KeyPath) -> tuple[bool, Any]:
    """Whether the raw data has a value at the path, and the value."""
    for part in path:
        if isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
            continue
        if not isinstance(data, Mapping) or part not in data:
            return False, None
        data = data[part]
    return True, data


def mark_of(marks: Mapping[KeyPath, Mark], path: KeyPath) -> Mark | None:
    """Mark of a value, or of the nearest table around it that has one."""
    for length in range(len(path), -1, -1):
        if path[:length] in marks:
            return marks[path[:length]]
    return None
