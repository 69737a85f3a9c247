"""Verdicts on builds and verifications, in the words that all outputs share."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from etdev.cli.rendering.text import count, printable
from etdev.config.keys import toml_name
from etdev.pipeline.results.never_ran import RUNNING
from etdev.pipeline.results.verdict import check_names, target_verdict

if TYPE_CHECKING:
    from etdev.pipeline.results.file_result import FileResult, FilesResult
    from etdev.pipeline.results.result import BuildResult, TargetResult


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


def file_verdict(file: FileResult) -> str:
    """Return the verdict on a file that was verified without a config, such as ``rejected (bytes)``."""
    if file.status == "rejected":
        return f"rejected ({check_names(check for check in file.checks if check.status == 'failed')})"
    if file.unmet:
        return f"without a required check ({check_names(file.unmet)})"
    executed = any(check.name in RUNNING and check.status == "passed" for check in file.checks)
    return "good in all checks that ran" if executed else "good in all checks that ran, but not executed"


def override_texts(result: BuildResult, target: TargetResult) -> list[str]:
    """Return the settings from environment variables and ``--set`` as text, except settings of other targets."""
    own = f"targets.{toml_name(target.name)}."
    found = {key: value for key, value in result.overrides.items() if key.startswith(own) or key[:8] != "targets."}
    return [printable(f"{key} = {json.dumps(value)}") for key, value in found.items()]
