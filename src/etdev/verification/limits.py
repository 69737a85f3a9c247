"""Limits of the config, each on one figure, and the results of checks that compare figures with limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from etdev.inspection.measure import measure_program
from etdev.pipeline.project import Project
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.result import NO_LIMIT, CheckResult, Failure, LatencyResult, MethodResult
from etdev.program import Program
from etdev.verification.answers import failed, not_run, passed


@dataclass(frozen=True)
class Measured:
    """A file, and the data from which its figures are computed."""

    path: Path
    size: int
    """Size of the file in bytes."""
    program: Program | None
    """The file's content; None if it cannot be read."""
    methods: tuple[MethodResult, ...] = ()
    """Results of lowering for each method, such as its delegates and ops; empty if unknown."""

    def figures(self, program: Program) -> Figures:
        """Return the figures of the file; ``program`` is its content."""
        return measure_program(program, self.size, self.methods)


@dataclass(frozen=True)
class Limit:
    """A limit of the config, compared with the figure of the file."""

    key: tuple[str, ...]
    """Key below the target's table, such as ``("budget", "file")``."""
    seen: str
    """Short text with figure and limit, such as ``file 129 KiB of 144 KiB``."""
    missed: str | None
    """Sentence with the figure and the amount by which it misses the limit; None if the limit is met."""
    cause: Callable[[], str] | None
    """Function that returns the cause, called only if the limit is missed; None if the cause is unknown."""
    remedy: str


@dataclass(frozen=True)
class Unjudged:
    """A limit that could not be checked."""

    key: tuple[str, ...]
    reason: str


def judge(
    check: str,
    project: Project,
    target: str,
    limits: Sequence[Limit],
    unjudged: Sequence[Unjudged] = (),
    *,
    against: str = "",
    note: str = "",
    latency: LatencyResult | None = None,
) -> CheckResult:
    """Return the result of a check from the limits that it checked.

    The check failed if a limit was missed. It did not run if a limit could not be checked or if there are none.
    Otherwise it passed. The summary of a pass begins with ``against``. The summary of a pass or a failure ends with
    ``note``.
    """
    failures = tuple(_failure(project, target, limit, limit.missed) for limit in limits if limit.missed is not None)
    if failures:
        return failed(
            check,
            [failure.message for failure in failures],
            gate=True,
            summary=failures[0].message + note,
            where="; ".join(dict.fromkeys(failure.where for failure in failures)),
            hint="; ".join(dict.fromkeys(failure.hint for failure in failures)),
            failures=failures,
            latency=latency,
        )
    kept = ", ".join(limit.seen for limit in limits)
    if unjudged:
        reasons = "; ".join(f"{'.'.join(item.key)}: {item.reason}" for item in unjudged)
        summary = f"{reasons}; judged: {kept}" if kept else reasons
        return not_run(check, summary, unjudged=project.where("targets", target, *unjudged[0].key))
    if not limits:
        return not_run(check, NO_LIMIT)
    return passed(check, f"{against}{kept}{note}", latency=latency)


def _failure(project: Project, target: str, limit: Limit, missed: str) -> Failure:
    cause = limit.cause() if limit.cause is not None else ""
    return Failure(
        message=f"{missed}; {cause}" if cause else missed,
        where=project.where("targets", target, *limit.key),
        hint=limit.remedy,
    )
