"""Checks of keys of targets and profiles that do not go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.checks.model import meant_source
from etdev.config.checks.raw import is_settled, list_of_tables, pair, table_at, tables_at, there_are
from etdev.config.describe.notation import example, literal
from etdev.config.issues import CONFLICT, MISSING_KEY, NOT_IN_PROFILE, REFERENCE, Issue
from etdev.config.keys import KeyPath, format_key, nearest
from etdev.config.layers import NOT_IN_PROFILES
from etdev.config.limits import RESULTS


def check_targets(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check for keys of one target that do not go together, and for targets that share a folder."""
    first_of: dict[str, str] = {}
    for name, target in tables_at(data, "targets"):
        path: KeyPath = ("targets", name)
        if first := first_of.get(name.casefold()):
            message = f"`{format_key(path)}` and `{format_key(('targets', first))}` are one folder on some file systems"
            yield Issue(path, message, CONFLICT, "give one of them a name that differs in more than case")
        first_of.setdefault(name.casefold(), name)
        if name.casefold() == RESULTS:
            message = f"`{format_key(path)}` is the name of a file that a build writes next to the targets' folders"
            yield Issue(path, message, CONFLICT, "give the target another name")
        steps = list_of_tables(target, "partitioners")
        for index, step in enumerate(steps[:-1]):
            if step.get("backend") == "portable":
                key = (*path, "partitioners", index, "backend")
                message = (
                    f'`{format_key(key)}` is "portable", which takes every op that is left: nothing reaches the rest'
                )
                yield Issue(key, message, CONFLICT, "put it last, or leave it out: what no backend takes is portable")
        runtime = table_at(target, "runtime")
        if "kernels" in runtime and "operators" in runtime:
            key = (*path, "runtime", "operators")
            message = f"`{format_key(key)}` and `kernels` exclude each other: both say which operators the runtime has"
            yield Issue(key, message, CONFLICT, "keep one of the two")
        yield from _check_accuracy(table_at(target, "verify"), (*path, "verify", "accuracy"))


def _check_accuracy(verify: Mapping[str, Any], path: KeyPath) -> Iterator[Issue]:
    accuracy = verify.get("accuracy")
    if not isinstance(accuracy, Mapping):
        return
    if "min" not in accuracy and "max" not in accuracy and not any(nearest(key, ("min", "max")) for key in accuracy):
        message = f"`{format_key(path)}` gates nothing; expected `min`, `max`, or both"
        yield Issue(
            (*path, "min"),
            message,
            MISSING_KEY,
            example("add the smallest value that passes, such as {}", {"min": 0.95}),
        )
    least, most = pair(accuracy, "min", "max")
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        message = f"`{format_key((*path, 'min'))}` is {literal(least)}, more than `max`, which is {literal(most)}"
        yield Issue((*path, "min"), message, CONFLICT, "make `min` at most `max`")


def check_io(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check that ``io`` names declared methods and inputs.

    The inputs of a saved program that the config does not declare are known only at link.
    """
    is_pt2 = meant_source(data) == "pt2"
    methods = dict.fromkeys(table_at(data, "methods")) or ({"forward": None} if is_pt2 else {})
    for name, target in tables_at(data, "targets"):
        for method, places in table_at(target, "io").items():
            key: KeyPath = ("targets", name, "io", method)
            if method in methods:
                yield from _check_io_inputs(data, method, places, (*key, "inputs"))
            elif is_settled(data, "methods") and methods:
                near = nearest(method, methods)
                hint = f"did you mean `{near}`?" if near else there_are("methods", methods)
                yield Issue(key, f"`{format_key(key)}` names no method", REFERENCE, hint)


def _check_io_inputs(data: Mapping[str, Any], method: str, places: object, key: KeyPath) -> Iterator[Issue]:
    declared = table_at(table_at(data, "methods"), method).get("inputs")
    if not isinstance(declared, list) or not isinstance(places, Mapping):
        return
    names = [item["name"] for item in declared if isinstance(item, Mapping) and isinstance(item.get("name"), str)]
    for name in table_at(places, "inputs") if len(names) == len(declared) else ():
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean `{near}`?" if near else there_are("inputs", names, f"`{method}` takes no inputs")
            yield Issue(
                (*key, name), f"`{format_key((*key, name))}` does not name an input of `{method}`", REFERENCE, hint
            )


def check_profiles(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check that profiles contain no key that a profile cannot hold."""
    for name, profile in tables_at(data, "profiles"):
        for key in NOT_IN_PROFILES:
            if key in profile:
                path: KeyPath = ("profiles", name, key)
                message = f"`{format_key(path)}`: a profile cannot contain `{key}`"
                yield Issue(path, message, NOT_IN_PROFILE, "move it to the top of the file, or remove it")
