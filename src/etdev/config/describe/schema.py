"""Generator of the JSON Schema (draft 2020-12) of config files, which editors use for TOML and YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from etdev.config.layers import NOT_IN_PROFILES
from etdev.config.models import Config
from etdev.config.names import NAMED_TABLES, NEW

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OVERLAY = "Overlay"
"""Suffix of a definition's name in the schema, if the definition is for a table inside a profile.

These definitions have no required keys.
"""

_NEW = {
    "type": "boolean",
    "description": "Declares that no file defines this name, so that it does not count as misspelled.",
}


def json_schema() -> dict[str, Any]:
    """Return the schema as data.

    Tables do not accept unknown keys. Nulls are not valid: users omit a key instead.
    """
    schema = Config.model_json_schema(mode="validation")
    definitions = schema.pop("$defs")
    tables = {name: _tidy(table) for name, table in definitions.items()}
    root = _tidy(schema)
    overlays = {f"{name}{_OVERLAY}": _relaxed(table) for name, table in tables.items()}
    for name in NAMED_TABLES:
        for definition in _referred(root["properties"][name]["additionalProperties"]):
            overlays[f"{definition}{_OVERLAY}"]["properties"][NEW] = _NEW
    overlay = _relaxed(root)
    overlay["properties"] = {key: value for key, value in overlay["properties"].items() if key not in NOT_IN_PROFILES}
    overlay["description"] = "A profile: any part of the config, which overrides the rest of the file."
    overlays[f"Config{_OVERLAY}"] = overlay
    root["properties"]["profiles"]["additionalProperties"] = {"$ref": f"#/$defs/Config{_OVERLAY}"}
    # If the config extends a file, that file may state the required keys.
    root["if"] = {"not": {"required": ["extends"]}}
    root["then"] = {"required": root.pop("required")}
    return {"$schema": DIALECT, "title": "etdev config", **root, "$defs": dict(sorted({**tables, **overlays}.items()))}


def schema_text() -> str:
    """Return the schema as the text of a JSON file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _referred(node: Mapping[str, Any]) -> list[str]:
    """Return the names of the definitions that a node of the schema refers to: one for each alternative of a union."""
    forms = node.get("oneOf", [node])
    return [form["$ref"].rpartition("/")[2] for form in forms]


def _tidy(node: Any) -> Any:
    """Return a schema without pydantic's titles, without null as an alternative, and without unset defaults."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidy = {
        key: {name: _tidy(value) for name, value in item.items()} if key in ("properties", "$defs") else _tidy(item)
        for key, item in node.items()
        if not (key == "title" or (key == "default" and item in (None, {}, [], ())) or key == "discriminator")
    }
    for pattern, value in tidy.pop("patternProperties", {}).items():
        # Without ``propertyNames``, an entry whose name does not match the pattern could have any value.
        tidy["propertyNames"] = {"pattern": pattern, **tidy.get("propertyNames", {})}
        tidy["additionalProperties"] = value
    if tidy.get("additionalProperties") is True:
        tidy["additionalProperties"] = {"not": {"type": "null"}}
    options = tidy.get("anyOf")
    if options and {"type": "null"} in options:
        options = [option for option in options if option != {"type": "null"}]
        del tidy["anyOf"]
        tidy = {**options[0], **tidy} if len(options) == 1 else {**tidy, "anyOf": options}
    return tidy


def _relaxed(node: Any) -> Any:
    """Return a schema without required keys, because a profile's table is merged with the table in the config."""
    if isinstance(node, list):
        return [_relaxed(item) for item in node]
    if not isinstance(node, dict):
        return node
    relaxed: dict[str, Any] = {}
    for key, item in node.items():
        if key == "properties":
            relaxed[key] = {name: _relaxed(value) for name, value in item.items()}
        elif key == "$ref":
            relaxed[key] = f"{item}{_OVERLAY}"
        elif key == "items":
            relaxed[key] = item  # Lists are replaced, not merged, so their elements stay complete.
        elif key not in ("required", "minProperties", "default"):
            # Without the key that selects an alternative, a table may match several alternatives.
            relaxed["anyOf" if key == "oneOf" else key] = _relaxed(item)
    return relaxed
