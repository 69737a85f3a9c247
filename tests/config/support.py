"""What the tests of the config share: writing data as TOML and YAML with known lines, and loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etdev.config.describe.notation import literal
from etdev.config.diagnostics import as_text
from etdev.config.keys import KeyPath, format_key, toml_name
from etdev.config.loader import LoadedConfig, load_config
from etdev.errors import ConfigError, Problem

FORMATS = ("toml", "yaml")


def load(
    folder: Path, text: str | None = None, name: str = "etdev.toml", *arguments: str, **options: Any
) -> LoadedConfig:
    """Load a config from a folder, written there first if its text is given; ``arguments`` are those of ``--set``."""
    if text is not None:
        (folder / name).write_text(text, encoding="utf-8")
    options = {"environ": {}, "cwd": folder} | options
    return load_config(Path(name), overrides=arguments, **options)


def problems(
    folder: Path, text: str | None = None, name: str = "etdev.toml", *arguments: str, **options: Any
) -> tuple[Problem, ...]:
    """The problems of a config; none if it loads."""
    try:
        load(folder, text, name, *arguments, **options)
    except ConfigError as error:
        return error.problems
    return ()


def said(folder: Path, text: str, name: str = "etdev.toml", *arguments: str, **options: Any) -> str:
    """What a user reads about a config."""
    return as_text(problems(folder, text, name, *arguments, **options))


MINIMAL = """\
version = 1
[model]
entry = "model:make"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [1, 8] }]
[targets.cpu]
"""
"""The smallest config: each test adds its own lines, which belong to ``[targets.cpu]`` unless they begin a table."""


def emit(data: Mapping[str, Any], form: str) -> tuple[str, dict[KeyPath, int]]:
    """The data as a file in which each key has a line of its own, and the line of every path."""
    writer = _Toml() if form == "toml" else _Yaml()
    writer.table(data, ())
    return "\n".join(writer.lines) + "\n", writer.at | {(): 1}


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.at: dict[KeyPath, int] = {}

    def line(self, text: str, *paths: KeyPath) -> None:
        self.lines.append(text)
        for path in paths:
            self.at.setdefault(path, len(self.lines))


def is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


class _Toml(_Writer):
    def table(self, data: Mapping[str, Any], path: KeyPath) -> None:
        inner = {key: value for key, value in data.items() if isinstance(value, Mapping) or is_tables(value)}
        for key, value in data.items():
            if key not in inner:
                self.scalar(toml_name(key), value, (*path, key))
        for key, value in inner.items():
            name = format_key(tuple(part for part in (*path, key) if isinstance(part, str)))
            for index, item in enumerate(value if isinstance(value, list) else []):
                self.line(f"[[{name}]]", (*path, key), (*path, key, index))
                self.table(item, (*path, key, index))
            if isinstance(value, Mapping):
                self.line(f"[{name}]", (*path, key))
                self.table(value, (*path, key))

    def scalar(self, name: str, value: object, path: KeyPath) -> None:
        self.line(f"{name} = {literal(value)}", path)
        for index in range(len(value) if isinstance(value, list) else 0):
            self.at[(*path, index)] = len(self.lines)


class _Yaml(_Writer):
    def table(self, data: Mapping[str, Any], path: KeyPath, indent: str = "", first: str | None = None) -> None:
        for key, value in data.items():
            start = indent if first is None else first
            first = None
            name, inner = json.dumps(key, ensure_ascii=False) if not key.isidentifier() else key, (*path, key)
            if isinstance(value, Mapping) and value:
                self.line(f"{start}{name}:", inner)
                self.table(value, inner, f"{indent}  ")
            elif is_tables(value):
                self.line(f"{start}{name}:", inner)
                for index, item in enumerate(value):
                    self.at[(*inner, index)] = len(self.lines) + 1
                    self.table(item, (*inner, index), f"{indent}    ", f"{indent}  - ")
                    if not item:
                        self.line(f"{indent}  - {{}}")
            else:
                self.line(f"{start}{name}: {json.dumps(value, ensure_ascii=False)}", inner)
                for index in range(len(value) if isinstance(value, Sequence) and not isinstance(value, str) else 0):
                    self.at[(*inner, index)] = len(self.lines)
