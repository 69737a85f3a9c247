"""Checks of keys of targets and profiles that conflict with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.config.checks.model import method_names
from etdev.config.describe.notation import example, literal
from etdev.config.issues import CONFLICT, MISSING_KEY, NOT_IN_PROFILE, REFERENCE, Issue
from etdev.config.keys import nearest, suggest
from etdev.config.layers import NOT_IN_PROFILES
from etdev.config.limits import RESULTS
from etdev.config.raw import Raw, listed


def check_targets(config: Raw) -> Iterator[Issue]:
    """Check for keys of one target that conflict, and for targets that share a folder."""
    first_of: dict[str, Raw] = {}
    for target in config["targets"].tables:
        folder = target.name.casefold()
        if first_of.setdefault(folder, target) is not target:
            text = f"and `{first_of[folder]}` are the same folder on some file systems"
            yield target.issue(text, CONFLICT, "rename one of them so that the names differ in more than case")
        if folder == RESULTS:
            text = "is the name of a file that a build writes next to the targets' folders"
            yield target.issue(text, CONFLICT, "rename the target")
        for step in target["partitioners"].elements[:-1]:
            if step["backend"].value == "portable":
                text = 'is "portable", which takes all remaining ops, so the partitioners after it get none'
                hint = "move it to the end, or remove it: ops without a backend are portable"
                yield step["backend"].issue(text, CONFLICT, hint)
        runtime = target["runtime"]
        if "kernels" in runtime and "operators" in runtime:
            text = "and `kernels` cannot be used together: both state the operators of the runtime"
            yield runtime["operators"].issue(text, CONFLICT, "keep one of them")
        yield from _check_accuracy(target["verify"]["accuracy"])


def _check_accuracy(accuracy: Raw) -> Iterator[Issue]:
    if isinstance(accuracy.value, Mapping) and not any(nearest(key, ("min", "max")) for key in accuracy.table):
        hint = example("set the minimum, such as {}", {"min": 0.95})
        yield accuracy.issue("has no limit; expected `min`, `max`, or both", MISSING_KEY, hint, at="min")
    least, most = accuracy.range("min", "max")
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        text = f"is {literal(least)}, more than `max`, which is {literal(most)}"
        yield accuracy["min"].issue(text, CONFLICT, "set `min` to at most `max`")


def check_io(config: Raw) -> Iterator[Issue]:
    """Check that ``io`` names declared methods and inputs.

    A saved program may have inputs that the config does not declare. Their names are known only at the link.
    """
    methods = method_names(config)
    for target in config["targets"].tables:
        for name in target["io"].table:
            method = target["io"][name]
            if name in methods:
                yield from _check_io_inputs(method["inputs"], config["methods"][name]["inputs"], name)
            elif config.is_settled("methods") and methods:
                hint = suggest(name, methods, listed("methods", methods))
                yield method.issue("names no method", REFERENCE, hint)


def _check_io_inputs(owners: Raw, declared: Raw, method: str) -> Iterator[Issue]:
    names = [tensor["name"].value for tensor in declared.elements]
    if isinstance(declared.value, list) and all(isinstance(name, str) for name in names):
        for name in owners.table:
            if name not in names:
                hint = suggest(name, names, listed("inputs", names, f"`{method}` takes no inputs"))
                yield owners[name].issue(f"does not name an input of `{method}`", REFERENCE, hint)


def check_profiles(config: Raw) -> Iterator[Issue]:
    """Check that profiles contain only keys that are allowed in a profile."""
    for profile in config["profiles"].tables:
        for key in NOT_IN_PROFILES:
            if key in profile:
                hint = "move it to the top of the file, or remove it"
                yield profile[key].issue(f": a profile cannot contain `{key}`", NOT_IN_PROFILE, hint)
