"""Raw values in words and in the notation of a config file, for messages and listings."""

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
"""Password in a URI, with the user before it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Keys and values in a hint, which TOML and YAML write differently."""

    values: Mapping[str, Any]
    table: str = ""
    """Table that they belong to, if the problem is in another one."""

    def text(self, *, yaml: bool) -> str:
        """Return the setting as a config file in YAML or TOML has it."""
        if yaml:
            pairs = ", ".join(f"{name}: {flow(value)}" for name, value in self.values.items())
            return f"{pairs} under {self.table}" if self.table else pairs
        pairs = ", ".join(f"{toml_name(name)} = {literal(value)}" for name, value in self.values.items())
        return f"[{self.table}] with {pairs}" if self.table else pairs


@dataclass(frozen=True, slots=True)
class Example:
    """Hint with settings, one for each ``{}`` in the text."""

    template: str
    settings: tuple[Setting, ...]

    def text(self, *, yaml: bool) -> str:
        """Return the hint for a config file in YAML or TOML."""
        return self.template.format(*(setting.text(yaml=yaml) for setting in self.settings))


def example(template: str, *settings: Mapping[str, Any], table: str = "") -> Example:
    """Return a hint whose settings are written in the notation of the config file."""
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
"""Words in messages for each kind of raw value."""


def kind(value: object) -> str:
    """Return the word of :data:`KIND_WORDS` for the type of a value, or the type's name if there is no word."""
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
    """Return the value as TOML writes it on one line. YAML's flow style reads the scalars the same way."""
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
    """Return the value as YAML writes it on one line."""
    match kind(value):
        case "list":
            return f"[{', '.join(flow(item) for item in value)}]"  # type: ignore[attr-defined]
        case "table":
            pairs = [f"{toml_name(key)}: {flow(item)}" for key, item in value.items()]  # type: ignore[attr-defined]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    return literal(value)


def short(value: object, limit: int = 60) -> str:
    """Return :func:`literal` without passwords, cut if it is long; for lists and tables only the word."""
    if isinstance(value, Mapping | list | tuple):
        if value:
            return KIND_WORDS[kind(value)]
        return "an empty table" if isinstance(value, Mapping) else "an empty list"
    if isinstance(value, int) and value.bit_length() > limit * 4:
        return "a number of over 70 digits"
    text = without_password(literal(value[: limit * 2] if isinstance(value, str | bytes) else value))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def without_password(text: str) -> str:
    """Return the text with ``…`` for the password of a URI in it, since other people read the logs."""
    return _PASSWORD.sub(r"\g<user>…@", text)


def bytes_table(value: bytes) -> dict[str, str]:
    """Return the notation of bytes that TOML, JSON and YAML share."""
    return {"base64": base64.b64encode(value).decode("ascii")}


def plain(value: Any) -> Any:
    """Return a dumped model in types that TOML and JSON can write.

    Tuples become lists, bytes become :func:`bytes_table`, and unset values are left out.
    """
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return bytes_table(value) if isinstance(value, bytes) else value
