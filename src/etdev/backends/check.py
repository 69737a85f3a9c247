"""Checks of the partitioners in a config, with the rules of each backend. This module does not import torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etdev import backends
from etdev.backends.base import Backend, ChecksOptions
from etdev.backends.devices import check_device, check_target_device
from etdev.config.issues import CONFLICT, Issue
from etdev.config.messages import model_issues
from etdev.config.raw import Raw
from etdev.config.types import parse_base64_table
from etdev.devices import TARGET_DEVICE
from etdev.errors import MissingRequirementError


def check_partitioners(config: Raw) -> Iterable[Issue]:
    """Yield the issues of every ``[[targets.X.partitioners]]`` in a config.

    There is an issue in these cases:

    * The backend is unknown or cannot be loaded.
    * The backend refuses an option, a device or a compile spec.
    * The backend needs static shapes, and a method has dynamic dimensions.
    * A target sets a minimum share of delegated ops, but its backends have no delegates.
    """
    dynamic = [method.name for method in config["methods"].tables if any(map(_is_dynamic, method["dims"].tables))]
    for target in config["targets"].tables:
        for step in target["partitioners"].elements:
            if isinstance(step["backend"].value, str):
                yield from _check_step(step, dynamic)
        yield from _check_delegated(target)


def _check_step(step: Raw, dynamic: Sequence[str]) -> Iterable[Issue]:
    key, name = step["backend"].path, step["backend"].value
    try:
        backend = backends.get(name)
    except KeyError:
        known = backends.names()
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"available backends: {', '.join(known)}"
        yield Issue(key, f"there is no backend {name!r}", "unknown-backend", hint)
        return
    except MissingRequirementError as error:
        yield Issue(key, error.message, "broken-backend", error.hint)
        return
    if dynamic and not backend.dynamic_shapes:
        text = f"the backend {name!r} needs static shapes, but method {dynamic[0]!r} has dynamic dimensions"
        yield Issue(key, text, "dynamic-shapes", f"write fixed numbers in the shapes of {', '.join(dynamic)}")
    options = step["options"]
    if "options" not in step or isinstance(options.value, Mapping):
        issues = model_issues(backend.options, options.table, options.path)
        yield from issues or _check_options(backend, options)
    device = step["device"].value
    for message, hint in check_device(backend, device):
        yield Issue(step["device"].path, message, "device", hint)
    if "compile_specs" not in step or isinstance(step["compile_specs"].value, Mapping):
        yield from _check_specs(backend, device, step["compile_specs"])


def _check_delegated(target: Raw) -> Iterable[Issue]:
    """Yield an issue if a target sets a minimum share of delegated ops, but its backends have no delegates."""
    limit, names = target["budget"]["delegated"], [step["backend"].value for step in target["partitioners"].elements]
    if not isinstance(limit.value, int | float) or limit.value <= 0 or not names:
        return
    try:
        found = [backends.get(str(name)) for name in names]
    except (KeyError, MissingRequirementError):
        return  # Another issue concerns the backend.
    if any(backend.delegate_ids for backend in found):
        return
    lacking = ", ".join(dict.fromkeys(repr(backend.name) for backend in found))
    text = f"cannot be reached: no backend of the target ({lacking}) has delegates; all ops run on kernels"
    yield limit.issue(text, CONFLICT, "remove this limit, or add a backend with delegates")


def _check_options(backend: Backend, options: Raw) -> Iterable[Issue]:
    if isinstance(backend, ChecksOptions):
        for issue in backend.check_options(backend.options.model_validate(dict(options.table))):
            yield Issue((*options.path, *issue.path), issue.message, "option", issue.hint)


def _check_specs(backend: Backend, device: object, given: Raw) -> Iterable[Issue]:
    try:
        specs: dict[str, Any] = {key: parse_base64_table(value) for key, value in given.table.items()}
    except ValueError:
        return
    issues = list(check_target_device(backend, device, specs))
    for issue in issues:
        yield Issue(given[issue.key].path, issue.message, "device", issue.hint)
    judged = issues or any(name != "cpu" for name in backend.device_types)
    own = {key: value for key, value in specs.items() if not (judged and key == TARGET_DEVICE)}
    for issue in backend.check_compile_specs(own):
        yield Issue(given[issue.key].path, issue.message, "compile-spec", issue.hint)


def _is_dynamic(dim: Raw) -> bool:
    """Return True if a dimension can have more than one size."""
    return bool(dim.table.get("min", 1) != dim.table.get("max"))
