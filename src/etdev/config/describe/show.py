"""Output of the effective config (``etdev config show``) as a listing, as TOML and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from etdev.config.describe.grammar import entries_of, grammar_of
from etdev.config.describe.notation import literal, plain
from etdev.config.keys import KeyPath, format_key
from etdev.config.layers import Origin
from etdev.config.loader import LoadedConfig
from etdev.config.types import GIT_PREFIX

_SPENT = ("extends", "profiles")
"""Keys that the effective config does not contain, because the merge has already applied them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One key of the effective config."""

    key: KeyPath
    value: Any
    """Effective value after validation; None if the key is not set."""
    is_default: bool
    """True if the value equals the default, even if a layer sets the value."""
    origin: Origin | None
    """Origin of the value; None if the value is a default."""


def effective_rows(loaded: LoadedConfig, *, changed: bool = False) -> list[Row]:
    """Return a row for each key of the effective config, in the order of the config models.

    A table with user-chosen keys has a row for each of these keys. With ``changed``, return only keys whose values
    differ from their defaults.
    """
    rows = [row for row in _rows(loaded, (), loaded.config, None) if row.key[0] not in _SPENT]
    return [row for row in rows if not (changed and row.is_default)]


def show_text(loaded: LoadedConfig, *, changed: bool = False) -> str:
    """Return a listing with one line for each key: a mark for a changed value, the value, and the value's origin."""
    rows = effective_rows(loaded, changed=changed)
    cells = [
        (
            " " if row.is_default or changed else "*",
            format_key(row.key),
            _value_text(row.value),
            _origin_text(row.origin),
        )
        for row in rows
    ]
    key_width = max(len(cell[1]) for cell in cells)
    value_width = min(max(len(cell[2]) for cell in cells), 48)
    lines = [f"{mark} {key:<{key_width}}  {value:<{value_width}}  {origin}" for mark, key, value, origin in cells]
    head = f"# {describe_layers(loaded)}\n"
    head += (
        "# without keys that have their default values\n"
        if changed
        else "# * marks a value that differs from its default\n"
    )
    return head + "\n".join(line.rstrip() for line in lines) + "\n"


def describe_layers(loaded: LoadedConfig) -> str:
    """Return a text with the names of the layers that set values, lowest layer first."""
    names = [layer.marks[()].origin.source for layer in loaded.layers if () in layer.marks]
    if loaded.profile is not None:
        names.append(f"profile {loaded.profile}")
    overrides = [mark.origin.layer for layer in loaded.layers for mark in layer.marks.values()]
    names += [name for name in ("environment", "command line") if name in overrides]
    return " < ".join(dict.fromkeys(names))


def show_toml(loaded: LoadedConfig) -> str:
    """Return the effective config as one TOML file that loads to an equal :class:`Config`."""
    import tomli_w

    return _foreign_paths(loaded) + tomli_w.dumps(effective_data(loaded))


def show_json(loaded: LoadedConfig, *, changed: bool = False) -> str:
    """Return effective values and origins as JSON."""
    keys = [
        {
            "key": format_key(row.key),
            "value": plain(row.value),
            "default": row.is_default,
            "origin": None if row.origin is None else _origin_json(row.origin),
        }
        for row in effective_rows(loaded, changed=changed)
    ]
    document = {"format": 1, "profile": loaded.profile, "config": effective_data(loaded), "keys": keys}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def effective_data(loaded: LoadedConfig) -> dict[str, Any]:
    """Return the effective config as plain data: set values and defaults, without unset keys."""
    data: dict[str, Any] = _dump(loaded.config)
    return data


def _dump(value: Any) -> Any:
    if isinstance(value, BaseModel):
        # A table's default values may be invalid here, such as `kwargs` next to `pt2`.
        stated, keys = entries_of(value), grammar_of(type(value)).keys
        dumped = {name: _dump(item) for name, item in stated.items() if item is not None}
        return {
            name: item
            for name, item in dumped.items()
            if item not in ({}, ()) or stated[name] != keys[str(name)].default
        }
    if isinstance(value, Mapping):
        return {name: _dump(item) for name, item in value.items()}
    return [_dump(item) for item in value] if isinstance(value, tuple | list) else plain(value)


def _rows(loaded: LoadedConfig, path: KeyPath, value: Any, default: Any) -> Iterator[Row]:
    entries = entries_of(value)
    is_table = isinstance(value, BaseModel | Mapping) and len(entries) > 0
    if is_table or any(isinstance(item, BaseModel) for item in entries.values()):
        keys = grammar_of(type(value)).keys if isinstance(value, BaseModel) else {}
        for name, item in entries.items():
            yield from _rows(loaded, (*path, name), item, keys[str(name)].default if keys else None)
    else:
        yield Row(path, value, value == default, loaded.origins.get(path))


def _value_text(value: Any) -> str:
    if value is None:
        return "(not set)"
    text = literal(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


def _origin_text(origin: Origin | None) -> str:
    if origin is None:
        return "default"
    return f"{origin.place} (profile)" if origin.layer == "profile" else origin.place


def _origin_json(origin: Origin) -> dict[str, Any]:
    return {
        "layer": origin.layer,
        "source": origin.source,
        "line": origin.line,
        "column": origin.column,
        "base": str(origin.base),
    }


def _foreign_paths(loaded: LoadedConfig) -> str:
    """Return a comment line for each path in the config that is relative to a folder other than the main file's."""
    lines = [
        f"# {format_key(row.key)} = {literal(row.value)} is relative to {row.origin.base}\n"
        for row in effective_rows(loaded)
        if row.origin is not None and row.origin.base != loaded.root and _is_local_name(row)
    ]
    return "".join(lines)


_PATH_KEYS = frozenset(
    {
        "calibration",
        "entry",
        "fn",
        "hf",
        "imports",
        "known_hosts",
        "native_libraries",
        "operators",
        "out",
        "pt2",
        "samples",
        "sessions",
    }
)


def _is_local_name(row: Row) -> bool:
    if row.key[-1] == "planner":
        return ":" in row.value
    if row.key == ("baseline", "from"):
        return not row.value.startswith(GIT_PREFIX)
    if row.key == ("constants",):
        return isinstance(row.value, str)
    return row.key in (("model", "inputs"), ("model", "weights")) or not _PATH_KEYS.isdisjoint(
        part for part in row.key if isinstance(part, str)
    )
