"""Formatting of config problems, as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from etdev.errors import ConfigError, Problem

_FIELDS = ("rule", "message", "hint", "key", "source", "line", "column")


def as_text(problems: Sequence[Problem]) -> str:
    """Return the problems as text: ``place: message`` and the hint of each problem.

    ``place`` is ``file:line:column``, which editors turn into a link.
    """
    return f"{ConfigError(tuple(problems))}\n" if problems else ""


def as_warnings(problems: Sequence[Problem]) -> str:
    """Return the problems as text, with the prefix ``warning:`` in each message."""
    return as_text([replace(problem, message=f"warning: {problem.message}") for problem in problems])


def as_json(problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> str:
    """Return a JSON document: ``{"format": 1, "problems": [...], "warnings": [...]}``."""
    document = {"format": 1, "problems": _listed(problems), "warnings": _listed(warnings)}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _listed(problems: Sequence[Problem]) -> list[dict[str, object]]:
    return [{name: getattr(problem, name) for name in _FIELDS} for problem in problems]
