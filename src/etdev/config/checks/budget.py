"""Checks of targets' limits that are incomplete, or that need another key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.checks.model import meant_source
from etdev.config.checks.raw import is_settled, table_at, tables_at, there_are
from etdev.config.describe.notation import example, literal
from etdev.config.issues import CONFLICT, DUPLICATE, MISSING_KEY, REFERENCE, Issue
from etdev.config.keys import KeyPath, format_key, nearest
from etdev.config.types import canonical_device

_PERCENTILES = ("p50", "p95", "p99")
_BASELINE = example("add what to compare with: {}", {"from": "git:main"}, table="baseline")


def check_budgets(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check ``budget`` of each target."""
    for name, target in tables_at(data, "targets"):
        path: KeyPath = ("targets", name, "budget")
        budget = table_at(target, "budget")
        yield from _check_devices(table_at(budget, "memory"), (*path, "memory"))
        if isinstance(budget.get("latency"), Mapping):
            yield from _check_latency(data, budget["latency"], (*path, "latency"))
        if table_at(budget, "growth") and "baseline" not in data and is_settled(data, "baseline"):
            key = (*path, "growth")
            message = f"`{format_key(key)}` has nothing to compare with: there is no `baseline.from`"
            yield Issue(key, message, CONFLICT, _BASELINE)


def _check_devices(limits: Mapping[str, Any], path: KeyPath) -> Iterator[Issue]:
    """Report a second limit for the same device. A device name can be written in several ways."""
    seen: dict[str, str] = {}
    for name in limits:
        try:
            device = canonical_device(name)
        except ValueError:
            continue
        if seen.setdefault(device, name) != name:
            message = f"`{format_key((*path, name))}` is a second limit of {device}, next to {literal(seen[device])}"
            yield Issue((*path, name), message, DUPLICATE, "keep one of the two")


def _check_latency(data: Mapping[str, Any], latency: Mapping[str, Any], path: KeyPath) -> Iterator[Issue]:
    if not any(key in latency or nearest(key, latency) for key in _PERCENTILES):
        message = f"`{format_key(path)}` limits nothing; expected `p50`, `p95`, `p99`, or several of them"
        yield Issue(
            (*path, "p95"),
            message,
            MISSING_KEY,
            example("add the longest time that passes, such as {}", {"p95": "12ms"}),
        )
    methods = dict.fromkeys(table_at(data, "methods")) or ({"forward": None} if meant_source(data) == "pt2" else {})
    if not is_settled(data, "methods") or not methods:
        return
    if "method" not in latency:
        if len(methods) > 1 and not nearest("method", latency):
            message = f"`{format_key((*path, 'method'))}` is missing: the program has several methods"
            yield Issue((*path, "method"), message, MISSING_KEY, there_are("methods", methods))
        return
    method = latency["method"]
    if isinstance(method, str) and method not in methods:
        near = nearest(method, methods)
        hint = f"did you mean `{near}`?" if near else there_are("methods", methods)
        message = f"`{format_key((*path, 'method'))}` names no method: {literal(method)}"
        yield Issue((*path, "method"), message, REFERENCE, hint)
