"""Names of extension points as types of config values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from etdev import plugins
from etdev.plugins import PLANNERS, Group


@dataclass(frozen=True, slots=True)
class Registered:
    """Constraint of a text to the names of an extension point: etdev's own, and those of installed packages."""

    group: Group


def refuse_unregistered(group: Group) -> AfterValidator:
    """Return a validator that accepts the names of an extension point. It imports no plug-in."""

    def check(value: str) -> str:
        if value not in plugins.names(group):
            raise ValueError(f"not a {group.kind}")
        return value

    return AfterValidator(check)


PlannerName = Annotated[
    str,
    refuse_unregistered(PLANNERS),
    Registered(PLANNERS),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(PLANNERS.built_in)},
                {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$"},
            ]
        }
    ),
]
"""Planner of etdev or of another package. The JSON Schema does not depend on the installed packages."""
