"""Results of checks, and functions that create these results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from etdev.pipeline.results.result import CheckResult, Status


@dataclass(frozen=True)
class Finding:
    """Result of a check, but without the name of the check, the location of the cause, and the help."""

    status: Status
    summary: str
    problems: tuple[str, ...] = ()
    gate: bool = False
    """True if the check failed because of a limit in the config, False if the file is broken."""

    @classmethod
    def of(cls, problems: Sequence[str], summary: str = "", *, gate: bool = False) -> Finding:
        """Return a failed finding with these problems; if there are no problems, a passed finding with ``summary``."""
        if problems:
            return cls("failed", problems[0], tuple(problems), gate)
        return cls("passed", summary)

    def result(self, check: str, **advice: str | None) -> CheckResult:
        """Return the result of the check with the name ``check``.

        ``advice`` sets the fields ``where`` and ``hint`` of a failed result. Other results do not get these fields.
        """
        more = advice if self.status == "failed" else {}
        return CheckResult(
            name=check, status=self.status, summary=self.summary, problems=self.problems, gate=self.gate, **more
        )


def passed(check: str, summary: str, **more: Any) -> CheckResult:
    """Return the result of a check that passed; ``more`` sets other fields of the result."""
    return CheckResult(name=check, status="passed", summary=summary, **more)


def failed(
    check: str, problems: Sequence[str], *, summary: str | None = None, gate: bool = False, **more: Any
) -> CheckResult:
    """Return the result of a check that failed.

    ``problems`` contains one sentence for each problem. ``summary`` is by default the first problem. ``gate`` is True
    if the file exceeds a limit in the config; a build then ends with exit code 1. ``gate`` is False if the file is
    broken; a build then ends with exit code 4. ``more`` sets other fields of the result, such as ``where`` (location of
    the cause) and ``hint`` (help).
    """
    return CheckResult(
        name=check, status="failed", summary=summary or problems[0], problems=tuple(problems), gate=gate, **more
    )


def not_run(check: str, reason: str, **more: Any) -> CheckResult:
    """Return the result of a check that could not run."""
    return CheckResult(name=check, status="not run", summary=reason, **more)
