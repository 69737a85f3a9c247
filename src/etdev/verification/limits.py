"""Comparison of figures with the limits of the config."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etdev.backends.ethos_u import DELEGATE_ID as ETHOS_U
from etdev.inspection.delegate_memory import delegate_memory
from etdev.inspection.measure import measure_program
from etdev.pipeline.project import Project
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.reasons import NO_LIMIT
from etdev.pipeline.results.result import CheckResult, Failure, LatencyResult, MethodResult
from etdev.program import Program
from etdev.program.sidecar import MethodNotes
from etdev.program.sidecar.records import DelegateRecord
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
    records: Mapping[str, DelegateRecord] = field(default_factory=dict)
    """Maps the SHA-256 of a delegate's blob to the compiler's record of the delegate."""
    banks: Mapping[int, str] = field(default_factory=dict)
    """Maps a memory id to the name of the target's bank with this id."""
    notes: Mapping[str, MethodNotes] = field(default_factory=dict)
    """Maps a method to its notes in the sidecar, such as modules and source lines; empty if unknown."""

    pooled: Collection[str] = ()
    """Names of the data in the file of ``external_weights``; empty without this file."""

    def delegate_sizes(self, name: str) -> dict[str, int] | str:
        """Map each delegate to the bytes that it needs of one kind of memory.

        ``name`` is the compiler's name of that memory, such as ``scratch``. Delegates whose compiler does not state
        that memory are left out. If the sizes are unknown, return the reason.
        """
        if self.program is None:
            return "the check `bytes` failed"
        found = delegate_memory(self.program, self.records)
        known = sum(len(items) for items in found.values())
        if known < sum(item.id == ETHOS_U for plan in self.program.execution_plan for item in plan.delegates):
            return "the memory of the delegates is unknown: the object program of this file is not in the output folder"
        return {
            f"delegate {item.delegate} of {method!r}": item.sizes[name]
            for method, items in found.items()
            for item in items
            if name in item.sizes
        }

    def figures(self, program: Program) -> Figures:
        """Measure file size, memory and copies of ``program``, the content of the file."""
        return measure_program(program, self.size, self.methods, self.banks, pooled=self.pooled)


@dataclass(frozen=True)
class Limit:
    """A limit of the config, compared with the file's figure."""

    key: tuple[str, ...]
    """Key below the target's table, such as ``("budget", "file")``."""
    seen: str
    """Short text with the figure and the limit, such as ``file 129 KiB of 144 KiB``."""
    missed: str | None
    """Sentence with the figure and its distance from the limit; None if the limit is met."""
    cause: Callable[[], str] | None
    """Function that describes the cause of a missed limit; None if the cause is unknown."""
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
    """Return the result of a check that compared figures with limits.

    The check failed if a limit was missed. The check did not run if ``unjudged`` is not empty or ``limits`` is empty.
    Otherwise, the check passed. ``against`` is the start of a passed check's summary. ``note`` is the end of the
    summary of a passed or failed check. The summary of a failed check also states the limits in ``unjudged``.
    """
    reasons = "; ".join(f"{'.'.join(item.key)}: {item.reason}" for item in unjudged)
    place = project.where("targets", target, *unjudged[0].key) if unjudged else None
    failures = tuple(_failure(project, target, limit, limit.missed) for limit in limits if limit.missed is not None)
    if failures:
        return failed(
            check,
            [failure.message for failure in failures],
            gate=True,
            summary=failures[0].message + note + (f"; not compared: {reasons}" if reasons else ""),
            where="; ".join(dict.fromkeys(failure.where for failure in failures)),
            hint="; ".join(dict.fromkeys(failure.hint for failure in failures)),
            failures=failures,
            unjudged=place,
            latency=latency,
        )
    kept = ", ".join(limit.seen for limit in limits)
    if unjudged:
        summary = f"{reasons}; judged: {kept}" if kept else reasons
        return not_run(check, summary, unjudged=place)
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
