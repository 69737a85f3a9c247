"""Checks of a config's partitioners against the backends that they name, without importing torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etdev import backends
from etdev.backends.base import Backend, ChecksOptions
from etdev.backends.devices import check_device, check_target_device
from etdev.config.loader import Issue, KeyPath
from etdev.config.messages import model_issues
from etdev.config.types import parse_base64_table
from etdev.devices import TARGET_DEVICE
from etdev.errors import MissingRequirementError


def check_partitioners(data: Mapping[str, Any]) -> Iterable[Issue]:
    """Yield the issues of every ``[[targets.X.partitioners]]``.

    Issues are an unknown backend, wrong options, a device that the backend does not serve, and refused compile specs.
    ``data`` is the merged raw config, which may be wrong anywhere. Values of the wrong shape are skipped, since the
    models report them.
    """
    dynamic = [name for name, method in _tables(data.get("methods")) if _has_dynamic_dims(method)]
    for target, table in _tables(data.get("targets")):
        steps = table.get("partitioners")
        for index, step in enumerate(steps if isinstance(steps, list) else []):
            if isinstance(step, Mapping) and isinstance(step.get("backend"), str):
                yield from _check_step(step, ("targets", target, "partitioners", index), dynamic)


def _check_step(step: Mapping[str, Any], path: KeyPath, dynamic: Sequence[str]) -> Iterable[Issue]:
    name = step["backend"]
    try:
        backend = backends.get(name)
    except KeyError:
        known = backends.names()
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"backends here: {', '.join(known)}"
        yield Issue((*path, "backend"), f"there is no backend {name!r}", "unknown-backend", hint)
        return
    except MissingRequirementError as error:
        yield Issue((*path, "backend"), error.message, "broken-backend", error.hint)
        return
    if dynamic and not backend.dynamic_shapes:
        text = f"the backend {name!r} needs static shapes, and method {dynamic[0]!r} has dynamic dimensions"
        yield Issue((*path, "backend"), text, "dynamic-shapes", f"write numbers in the shapes of {', '.join(dynamic)}")
    options = step.get("options", {})
    if isinstance(options, Mapping):
        issues = model_issues(backend.options, options, (*path, "options"))
        yield from issues or _check_options(backend, options, (*path, "options"))
    device = step.get("device")
    for message, hint in check_device(backend, device):
        yield Issue((*path, "device"), message, "device", hint)
    specs = step.get("compile_specs", {})
    if isinstance(specs, Mapping):
        yield from _check_specs(backend, device, specs, (*path, "compile_specs"))


def _check_options(backend: Backend, options: Mapping[str, Any], path: KeyPath) -> Iterable[Issue]:
    if isinstance(backend, ChecksOptions):
        for issue in backend.check_options(backend.options.model_validate(dict(options))):
            yield Issue((*path, *issue.path), issue.message, "option", issue.hint)


def _check_specs(backend: Backend, device: object, specs: Mapping[str, Any], path: KeyPath) -> Iterable[Issue]:
    try:
        specs = {key: parse_base64_table(value) for key, value in specs.items()}
    except ValueError:
        return
    issues = list(check_target_device(backend, device, specs))
    for issue in issues:
        yield Issue((*path, issue.key), issue.message, "device", issue.hint)
    judged = issues or any(name != "cpu" for name in backend.device_types)
    own = {key: value for key, value in specs.items() if not (judged and key == TARGET_DEVICE)}
    for issue in backend.check_compile_specs(own):
        yield Issue((*path, issue.key), issue.message, "compile-spec", issue.hint)


def _has_dynamic_dims(method: Mapping[str, Any]) -> bool:
    """Return whether a dimension can have more than one size."""
    return any(dim.get("min", 1) != dim.get("max") for _, dim in _tables(method.get("dims")))


def _tables(value: object) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        for name, table in value.items():
            if isinstance(name, str) and isinstance(table, Mapping):
                yield name, table
