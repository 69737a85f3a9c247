"""Checks of budgets: incomplete limits, and limits that need another key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.config.checks.model import method_names
from etdev.config.describe.notation import example, literal
from etdev.config.issues import CONFLICT, DUPLICATE, MISSING_KEY, REFERENCE, Issue
from etdev.config.keys import suggest
from etdev.config.raw import Raw, listed
from etdev.config.types import canonical_device

_PERCENTILES = ("p50", "p95", "p99")
_BASELINE = example("set the baseline: {}", {"from": "git:main"}, table="baseline")


def check_budgets(config: Raw) -> Iterator[Issue]:
    """Check ``budget`` of each target."""
    for target in config["targets"].tables:
        budget = target["budget"]
        yield from _check_devices(budget["memory"])
        if isinstance(budget["latency"].value, Mapping):
            yield from _check_latency(config, budget["latency"])
        if budget["growth"].table and "baseline" not in config and config.is_settled("baseline"):
            text = "has nothing to compare with: there is no `baseline.from`"
            yield budget["growth"].issue(text, CONFLICT, _BASELINE)


def _check_devices(limits: Raw) -> Iterator[Issue]:
    """Report a second limit for the same device under another spelling of its name."""
    seen: dict[str, str] = {}
    for name in limits.table:
        try:
            device = canonical_device(name)
        except ValueError:
            continue
        if seen.setdefault(device, name) != name:
            text = f"is a second limit of {device}, next to {literal(seen[device])}"
            yield limits[name].issue(text, DUPLICATE, "keep one of them")


def _check_latency(config: Raw, latency: Raw) -> Iterator[Issue]:
    if all(map(latency.lacks, _PERCENTILES)):
        text = "limits nothing; expected `p50`, `p95`, `p99`, or several of them"
        remedy = example("set the maximum time, such as {}", {"p95": "12ms"})
        yield latency.issue(text, MISSING_KEY, remedy, at="p95")
    methods, method = method_names(config), latency["method"]
    if not config.is_settled("methods"):
        return
    if len(methods) > 1 and latency.lacks("method"):
        text = "is missing: the program has several methods"
        yield method.issue(text, MISSING_KEY, listed("methods", methods))
    elif methods and isinstance(method.value, str) and method.value not in methods:
        hint = suggest(method.value, methods, listed("methods", methods))
        yield method.issue(f"names no method: {literal(method.value)}", REFERENCE, hint)
