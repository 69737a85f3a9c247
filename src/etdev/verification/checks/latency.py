"""Check *latency*: measure calls of a method here, in the stock runtime, and compare them with the config's limits."""

from __future__ import annotations

from itertools import islice

from etdev.config.budget import Latency
from etdev.execution.runtimes import Runtime
from etdev.execution.timing import Thoroughness, measure_latency
from etdev.pipeline.project.machine import describe_load, describe_machine
from etdev.pipeline.results.result import NO_LIMIT, CheckResult, LatencyResult
from etdev.runtime.stock import ProgramFailureError
from etdev.units import format_duration
from etdev.verification.advice import advise
from etdev.verification.limits import Limit, judge
from etdev.verification.subject import Subject

_MOST_SAMPLES = 32
"""Maximum number of samples kept in memory; calls use them in turn."""


def check_latency(subject: Subject, runtime: Runtime, before: CheckResult, obstacle: str | None) -> CheckResult:
    """Measure the method that ``[targets.X.budget.latency]`` names, and compare the percentiles that it limits.

    ``before`` is the result of the check *runtime*. ``obstacle`` is the reason why the program cannot run in
    ``runtime``. Calls of a method that keeps state continue from the state of earlier calls.
    """
    limits = subject.project.config.targets[subject.target].budget.latency
    if limits is None:
        return CheckResult(name="latency", status="not run", summary=NO_LIMIT)
    if obstacle is not None:
        return _unjudged(subject, obstacle)
    if before.status == "failed" and not before.gate:
        return _unjudged(subject, "the check `runtime` failed")
    method = limits.method or next(iter(subject.reference.signatures))
    machine = describe_machine()
    try:
        subject.load(runtime, shared=subject.project.config.model.share_state)
        samples = tuple(islice(subject.samples[method], _MOST_SAMPLES))
        found, _ = measure_latency(runtime, method, samples, Thoroughness())
    except ProgramFailureError as error:
        return _unjudged(subject, f"the program fails when it is called again and again: {error}")
    busy = describe_load(machine)
    check = judge(subject.project, subject.target, "latency", _limits(subject, limits, method, found, busy))
    said = f"; {busy}" if busy is not None and check.status == "passed" else ""  # A failure says so as its cause.
    inputs = ", on random inputs" if method in subject.weak else ""
    how = f"{found.calls:,} calls of {method!r}{inputs}{said}"
    return check.model_copy(update={"summary": f"{check.summary} ({how})", "latency": found})


def _limits(subject: Subject, limits: Latency, method: str, found: LatencyResult, busy: str | None) -> list[Limit]:
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
                advise(subject.project, subject.target, None, ("latency", name)),
            )
        )
    return judged


def _unjudged(subject: Subject, reason: str) -> CheckResult:
    where = subject.project.where("targets", subject.target, "budget", "latency")
    return CheckResult(name="latency", status="not run", summary=reason, unjudged=where)
