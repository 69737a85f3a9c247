"""Check *growth*: compares a target's figures with its baseline. The growth must be within the config's limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etdev.config.types import allowed_growth
from etdev.inspection.breakdown import Parts, bank_parts, copy_parts, memory_parts, section_parts, weight_parts
from etdev.inspection.transfers import transfers_per_call
from etdev.pipeline.project import Project
from etdev.pipeline.project.baseline_source import judges_growth
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.reasons import NO_LIMIT
from etdev.pipeline.results.result import CheckResult
from etdev.program import Program
from etdev.units import format_share, format_size
from etdev.verification.advice import advise
from etdev.verification.answers import not_run
from etdev.verification.baseline import Baseline, NoBaseline, find_baseline
from etdev.verification.check import Check, Need
from etdev.verification.limits import Limit, Measured, Unjudged, judge
from etdev.verification.subject import Subject


class GrowthCheck(Check):
    """Is the growth of each figure since the baseline within the config's limit?"""

    name = "growth"
    needs = (Need.CONFIG, Need.PROGRAM)

    def applies(self, subject: Subject) -> str | None:
        return None if judges_growth(subject.built.project, subject.built.target) else NO_LIMIT

    def run(self, subject: Subject) -> CheckResult:
        """Compare the file with the baseline."""
        built = subject.built
        return check_growth(built.project, built.target, built.measured(subject.program), subject.program)


def check_growth(project: Project, target: str, measured: Measured, program: Program) -> CheckResult:
    """Compare the figures of a file with those of the target's baseline.

    ``program`` is the content of the file. If there is no baseline, the check does not run. Raises the errors of
    :func:`~etdev.verification.baseline.find_baseline`.
    """
    baseline = find_baseline(project, target)
    if isinstance(baseline, NoBaseline):
        where = project.where("targets", target, "budget", "growth")
        return not_run("growth", f"there is no baseline: {baseline.reason}", unjudged=where)
    comparison = _Comparison(project, target, measured, program, baseline)
    return judge("growth", project, target, *comparison.judged(), against=f"against {baseline.name}: ")


@dataclass(frozen=True)
class _File:
    """A built file: the new file, or the file of the baseline."""

    program: Program
    path: Path
    banks: Mapping[int, str]
    """Maps a memory id in this file to the name of its bank."""
    pooled: Collection[str]
    """Names of the data in the build's data file of ``external_weights``."""


@dataclass(frozen=True)
class _Figure:
    """One figure of a target: its value in the baseline and its value in the new file."""

    name: str
    before: int
    found: int
    parts: Callable[[_File], Parts]
    """Function that takes a file and returns a breakdown of the figure."""
    is_least: bool = False
    """True if ``before`` is only a lower bound of the baseline's figure."""
    place: tuple[str, ...] = ()
    """Name of the device or the bank, if the figure is memory; empty for other figures."""
    is_bank: bool = False
    """True if ``place`` is a bank."""


@dataclass(frozen=True)
class _Comparison:
    """Comparison of a target's new file with the baseline."""

    project: Project
    target: str
    measured: Measured
    program: Program
    baseline: Baseline

    def judged(self) -> tuple[list[Limit], list[Unjudged]]:
        """Return the limits that were checked, and the limits that could not be checked.

        If the baseline's figure is only a lower bound and the growth exceeds the limit, the limit cannot be checked.
        """
        limits: list[Limit] = []
        unjudged: list[Unjudged] = []
        found, reason = self.measured.figures(self.program), self.baseline.more_weights
        for key, allowed in self.project.config.targets[self.target].budget.growth:
            for figure in () if allowed is None else _figures(key, self.baseline, found, self.measured.banks):
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
            advise(self.project, self.target, self.measured, f"budget.growth.{key}", key, *figure.place),
        )

    @property
    def _new(self) -> _File:
        found = self.measured
        return _File(self.program, found.path, found.banks, found.pooled)

    def _cause(self, figure: _Figure) -> str:
        """Describe the parts that grew or, if no part is known to have grown, the largest parts of the new file."""
        parts, before = figure.parts(self._new), self.baseline
        is_known = not figure.is_bank or set(figure.place) <= set(before.banks.values())
        if before.program is not None and before.file is not None and is_known:
            grown = parts.grown_since(figure.parts(_File(before.program, before.file, before.banks, before.pooled)))
            if grown:
                return grown
        return parts.largest()


def _figures(key: str, baseline: Baseline, found: Figures, banks: Mapping[int, str]) -> Iterator[_Figure]:
    before = baseline.figures
    match key:
        case "file":
            yield _Figure("file", before.file, found.file, lambda file: section_parts(file.path))
        case "weights":
            is_least = baseline.more_weights is not None
            yield _Figure("weights", before.weights, found.weights, _weights, is_least)
        case "copies":
            yield _Figure("copies in a call", before.copies, found.copies, _most_copies)
        case "memory":
            for device, size in found.memory.items():
                parts = partial(_memory_of, device)
                yield _Figure(f"memory of {device}", before.memory.get(device, 0), size, parts, place=(device,))
            known = before.banks or {}
            for name in banks.values():
                if name in known:
                    parts = partial(_memory_of_bank, name)
                    size = (found.banks or {})[name]
                    yield _Figure(f"memory of bank {name}", known[name], size, parts, place=(name,), is_bank=True)


def _weights(file: _File) -> Parts:
    return weight_parts(file.program, pooled=file.pooled)


def _memory_of(device: str, file: _File) -> Parts:
    return memory_parts(file.program, device, {})


def _memory_of_bank(name: str, file: _File) -> Parts:
    index = next(index for index, bank in file.banks.items() if bank == name)
    return bank_parts(file.program, index, {})


def _most_copies(file: _File) -> Parts:
    """Find the method that copies the most bytes, and return its copies between the host and devices."""
    plans = file.program.execution_plan
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
