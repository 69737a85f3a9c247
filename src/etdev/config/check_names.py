"""Names of etdev's own checks and of the checks that other packages register.

This module does not import the checks. A package registers a :class:`etdev.verification.Check` in the entry-point group
``etdev.checks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from etdev import plugins
from etdev.config.describe.notation import literal
from etdev.config.keys import suggest
from etdev.config.types import Expected
from etdev.plugins import CHECKS


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """Facts about one of etdev's checks, for code that must not import the check itself."""

    failure: str
    """Description of the check's failures, for code scanners."""
    unjudged: Literal["warning", "note"] = "warning"
    """Level of the finding that etdev reports if this check could not evaluate a limit in the config."""


BUILT_IN: Mapping[str, CheckFacts] = {
    "bytes": CheckFacts("A file that the strict reader does not accept, or that has changed since it was built"),
    "plan": CheckFacts(
        "A file that does not compute the same as its object program, or that overwrites values before they are read"
    ),
    "placement": CheckFacts("Tensors, buffers, copies or delegates whose devices do not agree"),
    "kernels": CheckFacts("Operators or delegates that the target's runtime does not have"),
    "budget": CheckFacts("A budget that was missed"),
    "growth": CheckFacts("More growth over the baseline than the config allows", unjudged="note"),
    "runtime": CheckFacts("The stock runtime does not compute the same as the model"),
    "replay": CheckFacts("The interpreter does not compute the same as the model"),
    "tosa": CheckFacts("The TOSA graph of an Ethos-U delegate does not compute the same as the quantized model"),
    "native": CheckFacts(
        "ExecuTorch's C++ runtime does not compute the same as the model, or accesses memory outside its buffers"
    ),
    "device": CheckFacts("Memory on a device that does not match the plan"),
    "accuracy": CheckFacts("A missed limit of the project's own metric"),
    "latency": CheckFacts("Calls that take longer than the config allows"),
}
"""Maps the name of each built-in check to facts about the check.

The order must equal the order of :data:`etdev.verification.order.BUILT_IN`.
"""


def unjudged_level(check: str) -> Literal["warning", "note"]:
    """Return the level of the finding that etdev reports if the check could not evaluate a limit in the config."""
    return BUILT_IN[check].unjudged if check in BUILT_IN else "warning"


def check_names() -> tuple[str, ...]:
    """Return the names of all checks, in the order in which they run.

    Raises :class:`~etdev.errors.MissingRequirementError` if two packages use the same name.
    """
    return (*BUILT_IN, *plugins.registered(CHECKS))


def _refuse_unknown(name: str) -> str:
    if name not in BUILT_IN and name not in check_names():
        raise ValueError("no check has this name")
    return name


def _meant(text: str) -> str | None:
    return suggest(text, check_names(), written=literal)


class _Schema:
    """JSON Schema of a check's name. It lists the names of built-in checks and of checks from installed packages."""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {"enum": list(check_names()), "type": "string"}


CheckName = Annotated[
    str,
    AfterValidator(_refuse_unknown),
    Expected(f"one of {', '.join(map(literal, BUILT_IN))}", meant=_meant),
    _Schema(),
]
"""Name of a built-in check, or of a check from an installed package."""
