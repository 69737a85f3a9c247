"""Types of config values that are names from an extension point, such as planners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from etdev import plugins
from etdev.plugins import PLANNERS, Group


@dataclass(frozen=True, slots=True)
class Registered:
    """Marks a text type whose values are the names of an extension point: etdev's and those of installed packages."""

    group: Group


def refuse_unregistered(group: Group) -> AfterValidator:
    """Return a validator that accepts the names of an extension point, without importing plug-ins."""

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
"""Name of a planner, of etdev or of another package.

The JSON Schema of this type does not depend on the installed packages.
"""
