"""Problems of a config in the formats that terminals, GitHub, code scanners and programs read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from etdev import __version__
from etdev.errors import ConfigError, Problem

_RULES = {
    "unknown-key": "A key that this version of etdev does not have",
    "missing-key": "A required key is missing",
    "wrong-type": "A value of the wrong type",
    "wrong-value": "A value of the right type that is not valid",
    "wrong-name": "A name that is not spelled as names are",
    "duplicate-key": "A key that is defined twice",
    "duplicate": "A name that is used twice",
    "syntax": "A file that is not TOML or YAML as etdev reads it",
    "file": "A file that cannot be read",
    "reference": "A value that names something which does not exist",
    "conflict": "Keys that do not go together",
    "unknown-backend": "A backend that does not exist here",
    "broken-backend": "A backend of another package that cannot be used",
    "compile-spec": "A compile spec that the backend does not take",
    "override": "An environment variable or --set that cannot apply",
    "not-in-profile": "A key that a profile cannot contain",
}


def as_text(problems: Sequence[Problem]) -> str:
    """``place: message`` and the hint, for people and for editors that jump to ``file:line:column``."""
    return f"{ConfigError(tuple(problems))}\n" if problems else ""


def as_json(problems: Sequence[Problem]) -> str:
    """``{"format": 1, "problems": [...]}``."""
    fields = ("rule", "message", "hint", "key", "source", "line", "column")
    listed = [{name: getattr(problem, name) for name in fields} for problem in problems]
    return json.dumps({"format": 1, "problems": listed}, indent=2, ensure_ascii=False) + "\n"


def as_github(problems: Sequence[Problem]) -> str:
    """Workflow commands, which GitHub shows as annotations on the lines of a pull request."""
    return "".join(f"{_workflow_command(problem)}\n" for problem in problems)


def _workflow_command(problem: Problem) -> str:
    properties = {"title": f"etdev: {problem.rule}"}
    message = problem.message
    if problem.line is not None and problem.source is not None:
        properties = {"file": problem.source, "line": str(problem.line), "col": str(problem.column or 1)} | properties
    elif problem.source:
        message = f"{problem.source}: {message}"
    if problem.hint:
        message = f"{message}\nhint: {problem.hint}"
    listed = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    return f"::error {listed}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    # @actions/core, command.ts: escapeData
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    # @actions/core, command.ts: escapeProperty
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(problems: Sequence[Problem]) -> str:
    """SARIF 2.1.0 for code scanning."""
    rules = sorted({problem.rule for problem in problems})
    driver = {
        "name": "etdev",
        "version": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": _RULES.get(rule, rule)}} for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(problem, rules.index(problem.rule)) for problem in problems],
    }
    document = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _sarif_result(problem: Problem, rule_index: int) -> dict[str, Any]:
    text = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    result: dict[str, Any] = {
        "ruleId": problem.rule,
        "ruleIndex": rule_index,
        "level": "error",
        "message": {"text": text},
    }
    location: dict[str, Any] = {}
    if problem.line is not None and problem.source is not None:
        path = PurePath(problem.source)
        uri = path.as_uri() if path.is_absolute() else _uri(path)
        region = {"startLine": problem.line, "startColumn": problem.column or 1}
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": region}
    elif problem.source:
        result["message"]["text"] = f"{problem.source}: {text}"
    if problem.key:
        location["logicalLocations"] = [{"fullyQualifiedName": problem.key}]
    return result | ({"locations": [location]} if location else {})


def _uri(path: PurePath) -> str:
    from urllib.parse import quote

    return quote(path.as_posix())
