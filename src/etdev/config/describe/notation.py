"""Raw values as text, in words or in config notation, for messages and listings."""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etdev.config.keys import toml_name

_PASSWORD = re.compile(r"(?P<user>://[^/@:\s]*:)[^@\s]+@")
"""Pattern of a password in a URI, including the user name before the password."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Keys and values that a hint shows in the notation of TOML or YAML."""

    values: Mapping[str, Any]
    table: str = ""
    """Table that contains the keys; empty if this is the table in which the problem was found."""

    def text(self, *, yaml: bool) -> str:
        """Return the setting in the notation of YAML or TOML."""
        if yaml:
            pairs = ", ".join(f"{name}: {flow(value)}" for name, value in self.values.items())
            return f"{pairs} under {self.table}" if self.table else pairs
        pairs = ", ".join(f"{toml_name(name)} = {literal(value)}" for name, value in self.values.items())
        return f"[{self.table}] with {pairs}" if self.table else pairs


@dataclass(frozen=True, slots=True)
class Example:
    """A hint that contains settings. Each ``{}`` in the template is replaced by one setting."""

    template: str
    settings: tuple[Setting, ...]

    def text(self, *, yaml: bool) -> str:
        """Return the hint as text, with its settings in YAML or TOML."""
        return self.template.format(*(setting.text(yaml=yaml) for setting in self.settings))


def example(template: str, *settings: Mapping[str, Any], table: str = "") -> Example:
    """Return a hint with settings. :meth:`Example.text` writes the settings in the notation of the config file."""
    return Example(template, tuple(Setting(values, table) for values in settings))


KIND_WORDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "text": "text",
    "bytes": "bytes",
    "list": "a list",
    "table": "a table",
    "date": "a date or time",
    "nothing": "no value",
}
"""Maps the name of a kind of raw value to a phrase for messages."""


def kind(value: object) -> str:
    """Return the kind of a value: a key of :data:`KIND_WORDS`, or the name of the value's type."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "boolean"
    for kinds, name in (
        (int, "integer"),
        (float, "number"),
        (str, "text"),
        (bytes, "bytes"),
        (Mapping, "table"),
        (Sequence, "list"),
        ((datetime.date, datetime.time), "date"),
    ):
        if isinstance(value, kinds):
            return name
    return type(value).__name__


def literal(value: object) -> str:
    """Return the value as TOML text on one line; for scalars, this text is also valid in YAML's flow style."""
    match kind(value):
        case "boolean":
            return "true" if value else "false"
        case "text":
            return json.dumps(value, ensure_ascii=False)
        case "bytes":
            return literal(bytes_table(value))  # type: ignore[arg-type]
        case "list":
            return f"[{', '.join(literal(item) for item in value)}]"  # type: ignore[attr-defined]
        case "table":
            pairs = [f"{toml_name(key)} = {literal(item)}" for key, item in value.items()]  # type: ignore[attr-defined]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
        case "date":
            return value.isoformat()  # type: ignore[attr-defined, no-any-return]
        case "nothing":
            return "null"
    return str(value)


def flow(value: object) -> str:
    """Return the value as YAML text on one line."""
    match kind(value):
        case "list":
            return f"[{', '.join(flow(item) for item in value)}]"  # type: ignore[attr-defined]
        case "table":
            pairs = [f"{toml_name(key)}: {flow(item)}" for key, item in value.items()]  # type: ignore[attr-defined]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    return literal(value)


def short(value: object, limit: int = 60) -> str:
    """Return the value as TOML text, without passwords, and shortened if it is long.

    For a list or a table, return only a word for its kind.
    """
    if isinstance(value, Mapping | list | tuple):
        if value:
            return KIND_WORDS[kind(value)]
        return "an empty table" if isinstance(value, Mapping) else "an empty list"
    if isinstance(value, int) and value.bit_length() > limit * 4:
        return "a number of over 70 digits"
    text = without_password(literal(value[: limit * 2] if isinstance(value, str | bytes) else value))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def without_password(text: str) -> str:
    """Return the text with each password in a URI replaced by ``…``, because other people may read logs."""
    return _PASSWORD.sub(r"\g<user>…@", text)


def bytes_table(value: bytes) -> dict[str, str]:
    """Return bytes as a table that can be written in TOML, JSON and YAML: ``{ base64 = "…" }``."""
    return {"base64": base64.b64encode(value).decode("ascii")}


def plain(value: Any) -> Any:
    """Convert a dumped model to types that TOML and JSON can represent.

    Tuples become lists, bytes become :func:`bytes_table`, and unset values are omitted.
    """
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return bytes_table(value) if isinstance(value, bytes) else value
