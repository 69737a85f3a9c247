"""Check *latency*: measures calls of a method in the stock runtime on this machine, and checks the config's limits."""

from __future__ import annotations

from itertools import islice

from etdev.config.budget import Latency
from etdev.execution.float_ends import quantized_inputs
from etdev.execution.timing import Thoroughness, measure_latency
from etdev.pipeline.project.machine import describe_load, describe_machine
from etdev.pipeline.results.reasons import NO_LIMIT
from etdev.pipeline.results.result import CheckResult, LatencyResult
from etdev.runtime.stock import ProgramFailureError
from etdev.units import format_duration
from etdev.verification.answers import not_run
from etdev.verification.check import Check, Need
from etdev.verification.limits import Limit, judge
from etdev.verification.subject import BuiltTarget, Subject

_ADVICE = "measure more calls (`etdev bench`), let delegates take more ops (partitioners), or raise budget.latency"

_MOST_SAMPLES = 32
"""Maximum number of samples kept in memory. The calls cycle through these samples."""


class LatencyCheck(Check):
    """Is the latency of a call in the stock runtime on this machine within the config's limits?"""

    name = "latency"
    needs = (Need.CONFIG, Need.PROGRAM)

    def applies(self, subject: Subject) -> str | None:
        return NO_LIMIT if _budget(subject.built) is None else None

    def run(self, subject: Subject) -> CheckResult:
        """Measure the method that the config selects, and compare each percentile that has a limit.

        If the method keeps state, each call continues from the state of the previous call.
        """
        built, runtime, limits = subject.built, subject.stock, _budget(subject.built)
        assert limits is not None
        obstacle = subject.stock_obstacle
        if obstacle is not None or subject.broken("runtime"):
            return _unjudged(built, obstacle or "the check `runtime` failed")
        method = limits.method or next(iter(built.reference.signatures))
        machine = describe_machine()
        try:
            built.load(runtime, shared=built.project.config.model.share_state)
            given = islice(built.samples(method), _MOST_SAMPLES)
            samples = tuple(quantized_inputs(built.ends, method, sample) for sample in given)
            found, _ = measure_latency(runtime, method, samples, Thoroughness())
        except ProgramFailureError as error:
            return _unjudged(built, f"the program fails when it is called repeatedly: {error}")
        busy = describe_load(machine)
        judged = _limits(limits, method, found, busy)
        said = f"; {busy}" if busy is not None and all(limit.missed is None for limit in judged) else ""
        inputs = ", on random inputs" if method in built.weak else ""
        note = f" ({found.calls:,} calls of {method!r}{inputs}{said})"  # A missed limit states the load itself.
        return judge(self.name, built.project, built.target, judged, note=note, latency=found)


def _budget(built: BuiltTarget) -> Latency | None:
    return built.project.config.targets[built.target].budget.latency


def _limits(limits: Latency, method: str, found: LatencyResult, busy: str | None) -> list[Limit]:
    judged = []
    for name in ("p50", "p95", "p99"):
        allowed, took = getattr(limits, name), getattr(found, name)
        if allowed is None:
            continue
        missed = (
            f"{name} of a call of {method!r}: {format_duration(took)}, {format_duration(took - allowed)} more than "
            f"budget.latency.{name} ({format_duration(allowed)})"
        )
        judged.append(
            Limit(
                ("budget", "latency", name),
                f"{name} {format_duration(took)} of {format_duration(allowed)}",
                missed if took > allowed else None,
                (lambda: busy) if busy is not None else None,
                _ADVICE,
            )
        )
    return judged


def _unjudged(built: BuiltTarget, reason: str) -> CheckResult:
    return not_run("latency", reason, unjudged=built.place("budget", "latency"))
