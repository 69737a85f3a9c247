"""Parser of YAML 1.2 text. It returns plain data, and the positions of keys and values.

ruamel.yaml splits the text into events. This module interprets plain scalars by the core schema of YAML 1.2.2 (section
10.3). Therefore, ``on``, ``no`` and dates stay text.

Anchors, aliases, merge keys, unknown tags, duplicate keys and additional documents are errors. Therefore, no file can
expand to a huge value or run code.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from etdev.config.keys import KeyPath, format_key
from etdev.config.parsing.document import MAX_DEPTH, START, Document, Place, Position, refuse
from etdev.errors import ConfigError, Problem

_CORE: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"|~|null|Null|NULL"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text, 0)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", ""))),
)
_TAG = "tag:yaml.org,2002:"


def parse_yaml(text: str, source: str) -> Document:
    """Parse YAML. Raises :class:`ConfigError` with line and column for invalid YAML and unsupported features."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    builder = _Builder(source)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.feed(event)
    except MarkedYAMLError as error:
        raise _syntax_error(error, source) from error
    except ReaderError as error:
        line_start = text.rfind("\n", 0, error.position) + 1
        position = Position(text.count("\n", 0, error.position) + 1, error.position - line_start + 1)
        message = f"not valid YAML: the character U+{error.character:04X} is not allowed"
        raise refuse(source, message, position, rule="syntax") from error
    return builder.document()


def _syntax_error(error: Any, source: str) -> ConfigError:
    cause = f"{error.problem or error.context or 'cannot be read'}"
    mark = error.problem_mark or error.context_mark
    begun = error.context_mark if error.problem and error.context and error.context_mark is not mark else None
    since = f", {error.context} that begins at line {begun.line + 1}" if begun else ""
    hint = None
    if r"'\t'" in cause:
        hint = "indent with spaces"
    elif "mapping values are not allowed" in cause:
        cause = "a `:` is at a position where a key is not allowed"
        hint = "check the indentation; put text that contains `: ` in quotes"
    elif "cannot start any token" in cause:
        hint = "put the text in quotes"
    position = _position(mark) if mark else None
    return refuse(source, f"not valid YAML: {cause}{since}", position, rule="syntax", hint=hint)


@dataclass
class _Open:
    """A mapping or sequence that is not closed yet."""

    value: dict[str, Any] | list[Any]
    path: KeyPath
    key: str | None = None
    """Key of the value in the next event; None if a key must come first."""
    key_position: Position = START.key
    first: dict[str, Position] = field(default_factory=dict)


class _Builder:
    """Builder of data and positions from parse events; uses a stack instead of recursion."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._root: Any = None
        self._stack: list[_Open] = []
        self._places: dict[KeyPath, Place] = {(): START}
        self._duplicates: list[Problem] = []
        self._documents = 0

    def document(self) -> Document:
        if self._duplicates:
            raise ConfigError(tuple(self._duplicates))
        if self._root is None:
            return Document({}, {(): START})
        if not isinstance(self._root, dict):
            raise self._refuse("expected keys and values at the start of the file", self._places[()].value)
        return Document(self._root, self._places)

    def feed(self, event: Any) -> None:
        kind = type(event).__name__
        position = _position(event.start_mark)
        if kind == "DocumentStartEvent":
            self._start_document(event, position)
        elif kind == "AliasEvent":
            raise self._refuse(f"aliases (`*{event.anchor}`) are not supported", position, "repeat the value instead")
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._stack.pop()
        elif kind in ("ScalarEvent", "MappingStartEvent", "SequenceStartEvent"):
            if event.anchor is not None:
                raise self._refuse(
                    f"anchors (`&{event.anchor}`) are not supported", position, "repeat the value instead"
                )
            self._node(event, kind, position)

    def _start_document(self, event: Any, position: Position) -> None:
        self._documents += 1
        if self._documents > 1:
            raise self._refuse("a config must be one YAML document, but a second one begins here", position)
        if event.version is not None and event.version != (1, 2):
            raise self._refuse("only YAML 1.2 is supported", Position(1, 1), "remove the %YAML line")

    def _node(self, event: Any, kind: str, position: Position) -> None:
        parent = self._stack[-1] if self._stack else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            self._take_key(parent, event, kind, position)
            return
        value, starts_here = self._value(event, kind, position)
        path = self._put(parent, value, position, starts_here)
        if kind != "ScalarEvent":
            if len(self._stack) >= MAX_DEPTH:
                raise self._refuse(f"nested more than {MAX_DEPTH} levels deep", position)
            self._stack.append(_Open(value, path))

    def _take_key(self, table: _Open, event: Any, kind: str, position: Position) -> None:
        if kind != "ScalarEvent":
            raise self._refuse("a key must be text", position)
        if event.value == "<<" and event.style is None:
            raise self._refuse("merge keys (`<<`) are not supported", position, "use `extends` or profiles")
        key = self._joined(event.value, position)
        table.key, table.key_position = key, position
        before = table.first.setdefault(key, position)
        if before is not position:
            name = format_key((*table.path, key))
            message = f"`{name}` is defined twice; the first time at {self._source}:{before.line}:{before.column}"
            self._duplicates.append(
                Problem(message, name, self._source, *position, hint="keep one of them", rule="duplicate-key")
            )

    def _value(self, event: Any, kind: str, position: Position) -> tuple[Any, bool]:
        """Return the value of an event, and True if the value's text begins at the event's position.

        Return False for a block or an absent value. The caller then uses the position of the value's key.
        """
        if kind == "ScalarEvent":
            return self._scalar(event, position), bool(event.value) or event.style is not None
        tag = "map" if kind == "MappingStartEvent" else "seq"
        if event.tag not in (None, "!", _TAG + tag):
            raise self._unknown_tag(event.tag, position)
        return ({} if tag == "map" else []), bool(event.flow_style)

    def _put(self, parent: _Open | None, value: Any, position: Position, starts_here: bool) -> KeyPath:
        if parent is None:
            self._root = value
            self._places[()] = Place(position, position if not isinstance(value, dict) else START.value)
            return ()
        if isinstance(parent.value, list):
            path: KeyPath = (*parent.path, len(parent.value))
            parent.value.append(value)
            self._places[path] = Place(position, position)
            return path
        key, parent.key = parent.key, None
        assert key is not None
        path = (*parent.path, key)
        parent.value[key] = value
        self._places[path] = Place(parent.key_position, position if starts_here else parent.key_position)
        return path

    def _scalar(self, event: Any, position: Position) -> Any:
        tag, text = event.tag, self._joined(event.value, position)
        if tag == _TAG + "binary":
            try:
                return base64.b64decode("".join(text.split()), validate=True)
            except binascii.Error as error:
                raise self._refuse(f"this is not base64: {error}", position) from error
        if tag == _TAG + "str" or event.implicit[1]:
            return text
        if tag not in (None, "!", *(_TAG + name for name in ("int", "float", "bool", "null"))):
            raise self._unknown_tag(tag, position)
        if tag == "!":
            return text
        return self._plain(text, position)

    def _joined(self, text: str, position: Position) -> str:
        """Return the text with each surrogate pair (two escapes, as in JSON) replaced by one character."""
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise self._refuse("an escape is only one half of a surrogate pair", position) from error

    def _plain(self, text: str, position: Position) -> Any:
        for pattern, convert in _CORE:
            if pattern.fullmatch(text):
                try:
                    return convert(text)
                except ValueError as error:
                    raise self._refuse("this number has too many digits", position) from error
        return text

    def _unknown_tag(self, tag: str, position: Position) -> ConfigError:
        shown = f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag
        return self._refuse(f"the tag `{shown}` is not supported", position, "remove it")

    def _refuse(self, message: str, position: Position, hint: str | None = None) -> ConfigError:
        return refuse(self._source, message, position, rule="syntax", hint=hint)


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)
