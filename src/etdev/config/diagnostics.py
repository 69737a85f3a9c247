"""Problems of a config as people and programs read them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from etdev.errors import ConfigError, Problem


def as_text(problems: Sequence[Problem]) -> str:
    """``place: message`` and the hint, for people and for editors that jump to ``file:line:column``."""
    return f"{ConfigError(tuple(problems))}\n" if problems else ""


def as_json(problems: Sequence[Problem]) -> str:
    """``{"format": 1, "problems": [...]}``."""
    fields = ("rule", "message", "hint", "key", "source", "line", "column")
    listed = [{name: getattr(problem, name) for name in fields} for problem in problems]
    return json.dumps({"format": 1, "problems": listed}, indent=2, ensure_ascii=False) + "\n"
