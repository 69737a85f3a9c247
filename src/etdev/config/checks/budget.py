"""Checks of budgets: incomplete limits, and limits that need another key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from etdev.config.budget import BANK_NAME
from etdev.config.checks.model import method_names
from etdev.config.describe.notation import example, literal
from etdev.config.issues import CONFLICT, DUPLICATE, MISSING_KEY, REFERENCE, Issue
from etdev.config.keys import suggest
from etdev.config.raw import Raw, listed
from etdev.config.types import canonical_device
from etdev.devices import valid_names

_PERCENTILES = ("p50", "p95", "p99")
_BASELINE = example("set the baseline: {}", {"from": "git:main"}, table="baseline")


def check_budgets(config: Raw) -> Iterator[Issue]:
    """Check ``budget`` of each target."""
    for target in config["targets"].tables:
        budget = target["budget"]
        yield from _check_devices(budget["memory"])
        yield from _check_memory_names(budget["memory"], target)
        if isinstance(budget["latency"].value, Mapping):
            yield from _check_latency(config, budget["latency"])
        if budget["growth"].table and "baseline" not in config and config.is_settled("baseline"):
            text = "needs a baseline, but there is no `baseline.from`"
            yield budget["growth"].issue(text, CONFLICT, _BASELINE)


def _check_devices(limits: Raw) -> Iterator[Issue]:
    """Report a device that has two limits because its name is written in two ways."""
    seen: dict[str, str] = {}
    for name in limits.table:
        try:
            device = canonical_device(name)
        except ValueError:
            continue
        if seen.setdefault(device, name) != name:
            text = f"is a second limit of {device}, in addition to {literal(seen[device])}"
            yield limits[name].issue(text, DUPLICATE, "keep one of them")


def _check_memory_names(limits: Raw, target: Raw) -> Iterator[Issue]:
    """Report each memory limit whose name is neither a device nor a bank of the target."""
    memory = target["memory"]
    names = [bank["name"].value for bank in memory["banks"].elements]
    is_list = isinstance(memory["banks"].value, list)
    if not target.is_settled("memory") or not (is_list or memory.lacks("banks")):
        return  # Another issue concerns the banks.
    if not all(isinstance(name, str) for name in names):
        return
    banks = f"a bank of this target ({', '.join(map(literal, names))})" if names else "a bank (the target has no banks)"
    otherwise = listed("banks", [*map(str, names)], "add `memory.banks`, or limit the host's memory: `cpu`")
    for name in limits.table:
        if re.fullmatch(BANK_NAME, name) and name not in names and not _is_device(name):
            text = f"is a limit of {literal(name)}, which is neither a device ({valid_names()}) nor {banks}"
            yield limits[name].issue(text, REFERENCE, suggest(name, [*map(str, names), "cpu"], otherwise))


def _is_device(name: str) -> bool:
    try:
        canonical_device(name)
    except ValueError:
        return False
    return True


def _check_latency(config: Raw, latency: Raw) -> Iterator[Issue]:
    if all(map(latency.lacks, _PERCENTILES)):
        text = "contains no limit; expected `p50`, `p95`, `p99`, or several of them"
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
        yield method.issue(f"is {literal(method.value)}, which is not a method", REFERENCE, hint)
