"""The page ``docs/json.md`` and ``docs/schemas/``: what other programs read, from the models of these files."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter

from etdev.deployment.manifest import Manifest
from etdev.pipeline.cache.lock import Lock
from etdev.pipeline.results.result import BuildResult
from etdev.program.info import ProgramInfo


@dataclass(frozen=True, slots=True)
class Format:
    """A form of JSON (or TOML) that etdev writes."""

    name: str
    model: Any
    where: str


FORMATS = (
    Format(
        "report",
        BuildResult,
        "`report.json` next to each built program has one target, `results.json` in the output folder has all. "
        "`etdev build --output json` and `etdev verify --output json` print the same, and `etdev.build` returns it.",
    ),
    Format("program", ProgramInfo, "`etdev inspect --output json` prints it, and `etdev.inspect` returns it."),
    Format("manifest", Manifest, "`manifest.json` of each release of `etdev deploy`."),
    Format("lock", Lock, "`etdev.lock`, which is TOML with these keys."),
)
_HEAD = """\
# JSON formats

<!-- `make docs` writes this page and schemas/ from the models in src/etdev. -->

This page is for people whose programs read what etdev writes. You will be able to look up each field, its type and its
meaning.

Each format has a number, `format` or `version`. It changes if a field is removed or changes its meaning. New fields may
appear without that, so a reader should ignore fields that it does not know. Sizes are in bytes and times in seconds.
A JSON Schema of each format is next to this page.

| format | schema | where |
|---|---|---|
"""


def page() -> str:
    """Return the page."""
    rows = [
        f"| [{found.name}](#{found.name}) | [schema](schemas/{found.name}.schema.json) | {found.where} |\n"
        for found in FORMATS
    ]
    return _HEAD + "".join(rows) + "".join(_format(found) for found in FORMATS)


def schema(found: Format) -> str:
    """Return the JSON Schema of a format, with the meaning of each field."""
    made = _schema(found)
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **made}, indent=2) + "\n"


def _schema(found: Format) -> dict[str, Any]:
    made = TypeAdapter(found.model).json_schema(mode="serialization")
    meanings = _meanings()
    for name, table in ((found.model.__name__, made), *made.get("$defs", {}).items()):
        for key, field in table.get("properties", {}).items():
            field.pop("title", None)
            meaning = meanings.get((name, key))
            if meaning:
                field["description"] = meaning
        table.pop("title", None)
        if table.get("additionalProperties") is False:  # A reader ignores fields that it does not know.
            del table["additionalProperties"]
        if "description" in table:
            table["description"] = re.sub(r"\bNone\b", "null", " ".join(table["description"].split()))
    return made


def _format(found: Format) -> str:
    made = _schema(found)
    tables = [(found.name, found.model.__name__, made)]
    tables += [(name, name, table) for name, table in sorted(made.get("$defs", {}).items()) if "properties" in table]
    parts = []
    for title, name, table in tables:
        level = "##" if table is made else "###"
        heading = title if table is made else f"{title} of {found.name}"
        rows = [
            f"| `{key}` | {_type(field, found.name)} | {_cell(field.get('description', ''))} |\n"
            for key, field in table["properties"].items()
        ]
        intro = found.where if table is made else table.get("description", name)
        parts.append(
            f"\n{level} {heading}\n\n{_plain(intro)}\n\n| field | type | meaning |\n|---|---|---|\n{''.join(rows)}"
        )
    return "".join(parts)


def _type(field: dict[str, Any], name: str) -> str:
    """Return the type of a field in words."""
    if "$ref" in field:
        target = field["$ref"].rpartition("/")[2]
        return f"[{target}](#{target.lower()}-of-{name})" if target not in _PLAIN else _PLAIN[target]
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(part, name) for part in field["anyOf"]))
    if field.get("type") == "array":
        if "prefixItems" in field:
            return "list of " + ", ".join(_type(part, name) for part in field["prefixItems"])
        return f"list of {_type(field.get('items', {}), name)}"
    if field.get("type") == "object":
        value = field.get("additionalProperties")
        return f"map to {_type(value, name)}" if isinstance(value, dict) else "map"
    return {"null": "null", "integer": "whole number"}.get(field.get("type", ""), field.get("type", "any"))


_PLAIN = {"ExitCode": "an [exit code](ci.md#exit-codes)"}


@cache
def _meanings() -> dict[tuple[str, str], str]:
    """Return the texts below the fields of all classes in the modules of the formats, by class and field."""
    modules = {found.model.__module__ for found in FORMATS}
    classes = {id(item): item for found in FORMATS for item in _classes(found.model)}
    modules |= {item.__module__ for item in classes.values()}
    found: dict[tuple[str, str], str] = {}
    for name in sorted(modules):
        if name.startswith("etdev."):
            module = inspect.getmodule(next(item for item in classes.values() if item.__module__ == name))
            assert module is not None
            for node in ast.parse(inspect.getsource(module)).body:
                if isinstance(node, ast.ClassDef):
                    found |= {(node.name, key): text for key, text in _fields(node)}
    return found


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            text = " ".join(textwrap.dedent(after.value.value).split())
            yield field.target.id, re.sub(r"\bNone\b", "null", text)


def _classes(model: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Return the model and all classes that its fields name."""
    seen = set() if seen is None else seen
    if id(model) in seen:
        return
    seen.add(id(model))
    if inspect.isclass(model) and model.__module__.startswith("etdev."):
        yield model
        for hint in get_type_hints(model).values():
            yield from _classes(hint, seen)
    for part in get_args(model):
        yield from _classes(part, seen)


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """Return a docstring as Markdown: double backticks become single ones."""
    return re.sub(r":\w+:`~?\.?(?:[\w.]*\.)?(\w+)`", r"`\1`", text.replace("``", "`"))
