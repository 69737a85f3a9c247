"""Limits of the config on one figure each, and the answer of a check that judges them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from etdev.config.models import CheckName
from etdev.pipeline.figures import Figures
from etdev.pipeline.measure import measure_program
from etdev.pipeline.project import Project
from etdev.pipeline.result import NO_LIMIT, CheckResult, Failure, MethodResult
from etdev.program import Program


@dataclass(frozen=True)
class Measured:
    """A file, and what is known of it."""

    path: Path
    size: int
    """Bytes."""
    program: Program | None
    """What it holds; None if it cannot be read."""
    methods: tuple[MethodResult, ...] = ()
    """How lowering split them; none if that is not known any more."""

    def figures(self, program: Program) -> Figures:
        """The figures of the file, which holds this program."""
        return measure_program(program, self.size, self.methods)


@dataclass(frozen=True)
class Limit:
    """A limit, and what was found."""

    key: tuple[str, ...]
    """Below the target's table: ``("budget", "file")``."""
    seen: str
    """What was found of what is allowed, in short: ``file 129 KiB of 144 KiB``."""
    missed: str | None
    """What was found and by how much it misses the limit; None if it keeps it."""
    cause: Callable[[], str] | None
    """What is responsible, if that can be told; asked only of a limit that was missed."""
    remedy: str


@dataclass(frozen=True)
class Unjudged:
    """A limit that could not be judged."""

    key: tuple[str, ...]
    reason: str


def judge(
    project: Project, target: str, check: CheckName, limits: Sequence[Limit], unjudged: Sequence[Unjudged] = ()
) -> CheckResult:
    """Failed if a limit was missed; not run if one could not be judged, or if there are none; passed otherwise."""
    failures = tuple(_failure(project, target, limit, limit.missed) for limit in limits if limit.missed is not None)
    if failures:
        return CheckResult(
            name=check,
            status="failed",
            gate=True,
            summary=failures[0].message,
            problems=tuple(failure.message for failure in failures),
            where="; ".join(dict.fromkeys(failure.where for failure in failures)),
            hint="; ".join(dict.fromkeys(failure.hint for failure in failures)),
            failures=failures,
        )
    kept = ", ".join(limit.seen for limit in limits)
    if unjudged:
        reasons = "; ".join(f"{'.'.join(item.key)}: {item.reason}" for item in unjudged)
        return CheckResult(
            name=check,
            status="not run",
            summary=f"{reasons}; what was judged: {kept}" if kept else reasons,
            unjudged=project.where("targets", target, *unjudged[0].key),
        )
    if not limits:
        return CheckResult(name=check, status="not run", summary=NO_LIMIT)
    return CheckResult(name=check, status="passed", summary=kept)


def _failure(project: Project, target: str, limit: Limit, missed: str) -> Failure:
    cause = limit.cause() if limit.cause is not None else ""
    return Failure(
        message=f"{missed}; {cause}" if cause else missed,
        where=project.where("targets", target, *limit.key),
        hint=limit.remedy,
    )
