"""Check *growth*: compares a target with its baseline, and its growth with the config's limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etdev.config.types import allowed_growth
from etdev.inspection.breakdown import Parts, copy_parts, memory_parts, section_parts, weight_parts
from etdev.inspection.transfers import transfers_per_call
from etdev.pipeline.project import Project
from etdev.pipeline.project.baseline_source import judges_growth
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.result import NO_LIMIT, CheckResult
from etdev.program import Program
from etdev.units import format_share, format_size
from etdev.verification.advice import advise
from etdev.verification.answers import not_run
from etdev.verification.baseline import Baseline, NoBaseline, find_baseline
from etdev.verification.check import Check, Need
from etdev.verification.limits import Limit, Measured, Unjudged, judge
from etdev.verification.subject import Subject


class GrowthCheck(Check):
    """Does each figure exceed the baseline's figure by at most the amount that the config allows?"""

    name = "growth"
    needs = (Need.CONFIG, Need.PROGRAM)

    def applies(self, subject: Subject) -> str | None:
        return None if judges_growth(subject.built.project, subject.built.target) else NO_LIMIT

    def run(self, subject: Subject) -> CheckResult:
        """Compare the file with the baseline."""
        built = subject.built
        return check_growth(built.project, built.target, built.measured(subject.program), subject.program)


def check_growth(project: Project, target: str, measured: Measured, program: Program) -> CheckResult:
    """Compare a file, whose content is ``program``, with the baseline.

    The check does not run if there is no baseline. Raises the errors of
    :func:`~etdev.verification.baseline.find_baseline`.
    """
    baseline = find_baseline(project, target)
    if isinstance(baseline, NoBaseline):
        where = project.where("targets", target, "budget", "growth")
        return not_run("growth", f"there is no baseline: {baseline.reason}", unjudged=where)
    comparison = _Comparison(project, target, measured, program, baseline)
    return judge("growth", project, target, *comparison.judged(), against=f"against {baseline.name}: ")


@dataclass(frozen=True)
class _Figure:
    """One figure in the baseline and in the new file."""

    name: str
    before: int
    found: int
    parts: Callable[[Program, Path], Parts]
    """Function that takes a program and its file, and returns the parts of the figure."""
    is_least: bool = False
    """True if the figure of the baseline is only a lower bound."""
    device: tuple[str, ...] = ()
    """Name of the device, if the figure is memory on a device; empty for other figures."""


@dataclass(frozen=True)
class _Comparison:
    """Comparison of a target's file with its baseline."""

    project: Project
    target: str
    measured: Measured
    program: Program
    baseline: Baseline

    def judged(self) -> tuple[list[Limit], list[Unjudged]]:
        """Return the limits that were checked, and the limits for which the baseline's figures are not exact enough."""
        limits: list[Limit] = []
        unjudged: list[Unjudged] = []
        found, reason = self.measured.figures(self.program), self.baseline.more_weights
        for key, allowed in self.project.config.targets[self.target].budget.growth:
            for figure in () if allowed is None else _figures(key, self.baseline, found):
                limit = self._limit(key, allowed, figure)
                if limit.missed is not None and figure.is_least and reason is not None:
                    unjudged.append(Unjudged(limit.key, reason))
                else:
                    limits.append(limit)
        return limits, unjudged

    def _limit(self, key: str, growth: int | str, figure: _Figure) -> Limit:
        more = figure.found - figure.before
        allowed = allowed_growth(growth, figure.before)
        stated = f"{growth:,} bytes" if isinstance(growth, int) else growth
        share = f" ({format_share(more / figure.before)})" if figure.before else ""
        missed = (
            f"{figure.name}: {figure.found:,} bytes, {more:,}{share} more than the {figure.before:,} of "
            f"{self.baseline.name}; budget.growth.{key} allows {stated}"
        )
        return Limit(
            ("budget", "growth", key),
            _change(figure, allowed),
            missed if more > allowed else None,
            partial(self._cause, figure),
            advise(self.project, self.target, self.program, f"budget.growth.{key}", key, *figure.device),
        )

    def _cause(self, figure: _Figure) -> str:
        """Return the parts that grew or, if the baseline's file does not tell, the largest parts of the new file."""
        parts = figure.parts(self.program, self.measured.path)
        if self.baseline.program is not None and self.baseline.file is not None:
            grown = parts.grown_since(figure.parts(self.baseline.program, self.baseline.file))
            if grown:
                return grown
        return parts.largest()


def _figures(key: str, baseline: Baseline, found: Figures) -> Iterator[_Figure]:
    before = baseline.figures
    match key:
        case "file":
            yield _Figure("file", before.file, found.file, lambda _, file: section_parts(file))
        case "weights":
            is_least = baseline.more_weights is not None
            yield _Figure("weights", before.weights, found.weights, lambda program, _: weight_parts(program), is_least)
        case "copies":
            yield _Figure("copies in a call", before.copies, found.copies, lambda program, _: _most_copies(program))
        case "memory":
            for device, size in found.memory.items():
                parts = partial(_memory_of, device)
                yield _Figure(f"memory of {device}", before.memory.get(device, 0), size, parts, device=(device,))


def _memory_of(device: str, program: Program, _: Path) -> Parts:
    return memory_parts(program, device)


def _most_copies(program: Program) -> Parts:
    """Return the copies between the host and devices, for the method that copies the most bytes."""
    plans = program.execution_plan
    return copy_parts(max(plans, key=lambda plan: transfers_per_call(plan).total)) if plans else Parts(())


def _change(figure: _Figure, allowed: int) -> str:
    more = figure.found - figure.before
    if figure.is_least:
        return f"{figure.name} {f'at most {format_size(more)}' if more > 0 else 'no'} more, of {format_size(allowed)}"
    if not more:
        return f"{figure.name} the same"
    if more < 0:
        return f"{figure.name} {format_size(-more)} less"
    return f"{figure.name} {format_size(more)} more, of {format_size(allowed)}"
