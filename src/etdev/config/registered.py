"""Types of config values that are registered names of an extension point, such as planners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from etdev import plugins
from etdev.plugins import PLANNERS, Group


@dataclass(frozen=True, slots=True)
class Registered:
    """Annotation of a text type whose valid values are the registered names of an extension point."""

    group: Group


def refuse_unregistered(group: Group) -> AfterValidator:
    """Return a validator that accepts the registered names of an extension point.

    The validator does not import plug-ins.
    """

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
"""Name of a planner, which etdev or another package provides.

The JSON Schema of this type does not depend on the installed packages.
"""
