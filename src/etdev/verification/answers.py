"""Results of checks, and functions that make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from etdev.pipeline.results.result import CheckResult, Status


@dataclass(frozen=True)
class Finding:
    """Result of a check, without the check's name, the location of the cause and the help."""

    status: Status
    summary: str
    problems: tuple[str, ...] = ()
    gate: bool = False
    """True if the failure is a missed limit of the config, False if the file is broken."""

    @classmethod
    def of(cls, problems: Sequence[str], summary: str = "", *, gate: bool = False) -> Finding:
        """Return a failure with these problems or, if there are none, a pass with ``summary``."""
        if problems:
            return cls("failed", problems[0], tuple(problems), gate)
        return cls("passed", summary)

    def result(self, check: str, **advice: str | None) -> CheckResult:
        """Return the result of the check with the name ``check``.

        The result of a failure also gets ``advice``: its fields ``where`` and ``hint``.
        """
        more = advice if self.status == "failed" else {}
        return CheckResult(
            name=check, status=self.status, summary=self.summary, problems=self.problems, gate=self.gate, **more
        )


def passed(check: str, summary: str, **more: Any) -> CheckResult:
    """Return the result of a check that passed; ``more`` are other fields of the result."""
    return CheckResult(name=check, status="passed", summary=summary, **more)


def failed(
    check: str, problems: Sequence[str], *, summary: str | None = None, gate: bool = False, **more: Any
) -> CheckResult:
    """Return the result of a check that failed.

    ``gate`` is true if the file missed a limit of the config, and the exit code of a build is then 1. It is false if
    the file is broken, and the exit code is then 4. ``problems`` has one sentence for each problem. The first problem
    is the default of ``summary``. ``more`` are other fields of the result, such as ``where`` (location of the cause)
    and ``hint`` (help).
    """
    return CheckResult(
        name=check, status="failed", summary=summary or problems[0], problems=tuple(problems), gate=gate, **more
    )


def not_run(check: str, reason: str, **more: Any) -> CheckResult:
    """Return the result of a check that could not run."""
    return CheckResult(name=check, status="not run", summary=reason, **more)
