"""Names of checks: those of etdev, and those that other packages register. This module imports no check.

A package registers a :class:`etdev.verification.Check` in the entry-point group ``etdev.checks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from etdev import plugins
from etdev.config.describe.notation import literal
from etdev.config.keys import nearest
from etdev.config.types import Expected
from etdev.plugins import CHECKS


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """Facts about one of etdev's checks, for code that must not import the check itself."""

    failure: str
    """Description of the check's failures, for code scanners."""
    unjudged: Literal["warning", "note"] = "warning"
    """Level of a finding that a limit of the config was not judged."""


BUILT_IN: Mapping[str, CheckFacts] = {
    "bytes": CheckFacts("A file that the strict reader does not accept, or that was changed since it was built"),
    "plan": CheckFacts("A file that does not do what was linked, or that overwrites what it still reads"),
    "placement": CheckFacts("Devices of tensors, buffers, copies and delegates that do not agree"),
    "kernels": CheckFacts("Operators or delegates that the target's runtime does not have"),
    "budget": CheckFacts("A budget that was missed"),
    "growth": CheckFacts("More growth against the baseline than is allowed", unjudged="note"),
    "runtime": CheckFacts("The stock runtime does not compute what the model computes"),
    "replay": CheckFacts("The interpreter does not compute what the model computes"),
    "native": CheckFacts("ExecuTorch's C++ runtime does not compute what the model computes, or leaves its memory"),
    "device": CheckFacts("Memory on a device that is not as planned"),
    "accuracy": CheckFacts("A limit of the project's own metric that was missed"),
    "latency": CheckFacts("Calls that take longer than they may"),
}
"""Facts about etdev's checks, by name.

The order is that of :data:`etdev.verification.order.BUILT_IN`; a test ensures it.
"""


def check_names() -> tuple[str, ...]:
    """Return the names of all checks, in the order in which they run.

    Raises :class:`~etdev.errors.MissingRequirementError` for a name that two packages use.
    """
    return (*BUILT_IN, *plugins.registered(CHECKS))


def _refuse_unknown(name: str) -> str:
    if name not in BUILT_IN and name not in check_names():
        raise ValueError("no check has this name")
    return name


def _meant(text: str) -> str | None:
    name = nearest(text, check_names())
    return f"did you mean {literal(name)}?" if name else None


class _Schema:
    """JSON Schema of a check's name: lists etdev's checks and those of the installed packages."""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {"enum": list(check_names()), "type": "string"}


CheckName = Annotated[
    str,
    AfterValidator(_refuse_unknown),
    Expected(f"one of {', '.join(map(literal, BUILT_IN))}", meant=_meant),
    _Schema(),
]
"""Name of a check of etdev or of an installed package."""
