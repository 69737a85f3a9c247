"""Keys of targets and of profiles that do not go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.checks.raw import list_of_tables, pair, table_at, tables_at
from etdev.config.issues import CONFLICT, MISSING_KEY, NOT_IN_PROFILE, Issue
from etdev.config.keys import KeyPath, format_key, nearest
from etdev.config.layers import NOT_IN_PROFILES
from etdev.config.notation import literal


def check_targets(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Keys of one target that do not go together."""
    for name, target in tables_at(data, "targets"):
        path: KeyPath = ("targets", name)
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
        yield Issue((*path, "min"), message, MISSING_KEY, "add the smallest value that passes, such as min = 0.95")
    least, most = pair(accuracy, "min", "max")
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        message = f"`{format_key((*path, 'min'))}` is {literal(least)}, more than `max`, which is {literal(most)}"
        yield Issue((*path, "min"), message, CONFLICT, "make `min` at most `max`")


def check_profiles(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Keys that a profile cannot hold."""
    for name, profile in tables_at(data, "profiles"):
        for key in NOT_IN_PROFILES:
            if key in profile:
                path: KeyPath = ("profiles", name, key)
                message = f"`{format_key(path)}`: a profile cannot contain `{key}`"
                yield Issue(path, message, NOT_IN_PROFILE, "move it to the top of the file, or remove it")
