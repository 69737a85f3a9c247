"""The verdict on a built target, in the words that all outputs share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from etdev.config.check_names import unjudged_level

if TYPE_CHECKING:
    from etdev.pipeline.results.result import CheckResult, TargetResult


def target_verdict(target: TargetResult) -> str:
    """Return the verdict on a target, such as ``good`` or ``missed a gate (budget)``."""
    if target.status == "built" and target.unmet:
        return f"without a required check ({check_names(target.unmet)})"
    failed = check_names(check for check in target.checks if check.status == "failed")
    ran = [check.name for check in target.checks if check.status == "passed"]
    places = {"runtime": "good", "replay": "good in the replay", "native": "good in the C++ runtime"}
    built = next((verdict for name, verdict in places.items() if name in ran), "built but not run")
    if target.warnings:
        number = len(target.warnings)
        built += f" with {number} warning{'s' * (number != 1)}"
    if unjudged := check_names(unjudged_checks(target.checks)):
        built += f" except for a limit that was not compared ({unjudged})"
    return {"built": built, "gate failed": f"missed a gate ({failed})", "rejected": f"rejected ({failed})"}[
        target.status
    ]


def is_verified(target: TargetResult) -> bool:
    """Return True if a target ran in ExecuTorch's runtime and nothing that the config asks for is missing."""
    ran = {check.name for check in target.checks if check.status == "passed"}
    complete = not (target.unmet or target.warnings or unjudged_checks(target.checks))
    return target.status == "built" and complete and not ran.isdisjoint({"runtime", "native"})


def unjudged_checks(checks: Iterable[CheckResult]) -> list[CheckResult]:
    """Return the checks that did not run, because they could not compare a figure with its limit in the config.

    The check ``growth`` is left out, because a first build never has a baseline.
    """
    found = (check for check in checks if check.status == "not run" and check.unjudged is not None)
    return [check for check in found if unjudged_level(check.name) == "warning"]


def check_names(checks: Iterable[CheckResult]) -> str:
    """Return the names of checks as text."""
    return ", ".join(check.name for check in checks)
