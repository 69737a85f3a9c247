"""Verdicts on builds and verifications, in the words that all outputs share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from etdev.cli.rendering.text import count, printable
from etdev.config.check_names import unjudged_level
from etdev.config.keys import toml_name
from etdev.pipeline.results.never_ran import RUNNING

if TYPE_CHECKING:
    from etdev.pipeline.results.file_result import FileResult, FilesResult
    from etdev.pipeline.results.result import BuildResult, CheckResult, TargetResult


def describe_verdict(result: BuildResult) -> str:
    """Return the number of targets with each verdict, such as ``2 targets, all good``."""
    kinds = Counter(target_verdict(target) for target in result.targets)
    kinds.update(f"failed ({failed.errors[0].rule})" for failed in result.failed)
    kinds.update({"not started": len(result.not_built)} if result.not_built else {})
    return _counted(kinds, "target")


def describe_files(result: FilesResult) -> str:
    """Return the number of files with each verdict, such as ``2 files, all good in all checks that ran``."""
    return _counted(Counter(map(file_verdict, result.files)), "file")


def _counted(kinds: Counter[str], noun: str) -> str:
    total = kinds.total()
    text = ", ".join(f"{'all' if number == total > 1 else number} {kind}" for kind, number in kinds.items())
    return f"{count(total, noun)}, {text}"


def target_verdict(target: TargetResult) -> str:
    """Return the verdict on a target, such as ``good`` or ``missed a gate (budget)``."""
    if target.status == "built" and target.unmet:
        return f"without a required check ({check_names(target.unmet)})"
    failed = check_names(check for check in target.checks if check.status == "failed")
    ran = [check.name for check in target.checks if check.status == "passed"]
    places = {"runtime": "good", "replay": "good in the replay", "native": "good in the C++ runtime"}
    built = next((verdict for name, verdict in places.items() if name in ran), "built but not run")
    if target.warnings:
        built += f" with {count(len(target.warnings), 'warning')}"
    if unjudged := check_names(unjudged_checks(target.checks)):
        built += f" except for a limit that was not compared ({unjudged})"
    return {"built": built, "gate failed": f"missed a gate ({failed})", "rejected": f"rejected ({failed})"}[
        target.status
    ]


def file_verdict(file: FileResult) -> str:
    """Return the verdict on a file that was verified without a config, such as ``rejected (bytes)``."""
    if file.status == "rejected":
        return f"rejected ({check_names(check for check in file.checks if check.status == 'failed')})"
    if file.unmet:
        return f"without a required check ({check_names(file.unmet)})"
    executed = any(check.name in RUNNING and check.status == "passed" for check in file.checks)
    return "good in all checks that ran" if executed else "good in all checks that ran, but not executed"


def unjudged_checks(checks: Iterable[CheckResult]) -> list[CheckResult]:
    """Return the checks that could not compare a figure with its limit in the config.

    The check ``growth`` is left out, because a first build never has a baseline.
    """
    return [check for check in checks if check.unjudged is not None and unjudged_level(check.name) == "warning"]


def check_names(checks: Iterable[CheckResult]) -> str:
    """Return the names of checks as text."""
    return ", ".join(check.name for check in checks)


def override_texts(result: BuildResult, target: TargetResult) -> list[str]:
    """Return the settings from environment variables and ``--set`` as text, except settings of other targets."""
    own = f"targets.{toml_name(target.name)}."
    found = {key: value for key, value in result.overrides.items() if key.startswith(own) or key[:8] != "targets."}
    return [printable(f"{key} = {json.dumps(value)}") for key, value in found.items()]
