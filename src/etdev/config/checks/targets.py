"""Checks for conflicts between keys of targets, and for keys that a profile must not contain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from etdev.config.checks.model import method_names
from etdev.config.describe.notation import example, literal
from etdev.config.issues import CONFLICT, MISSING_KEY, NOT_IN_PROFILE, REFERENCE, Issue
from etdev.config.keys import nearest, suggest
from etdev.config.layers import NOT_IN_PROFILES
from etdev.config.limits import RESULTS
from etdev.config.raw import Raw, listed
from etdev.config.tables.schemes import integer_backend


def check_targets(config: Raw) -> Iterator[Issue]:
    """Check each target for conflicting keys, and check that each target has a folder of its own."""
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
        yield from _check_runner(target)


_NOT_IN_WHEEL = {"ethos-u": "driver of Ethos-U", "cortex-m": "kernels of cortex-m"}
"""Maps each backend that takes only quantized ops to the part that its programs need and ExecuTorch's wheel lacks."""


def _check_runner(target: Raw) -> Iterator[Issue]:
    """Report a runner for a quantized target whose programs need kernels or a driver that the wheel lacks.

    Without quantization, the backends of these targets take no ops, so the wheel has all kernels.
    """
    runner = target["runner"]
    backend = integer_backend([step["backend"].value for step in target["partitioners"].elements])
    if backend is not None and "quantize" in target and runner.value in (True, "embed"):
        text = (
            f"is {literal(runner.value)}, but a runner is built from the libraries of ExecuTorch's wheel, which have "
            f"no {_NOT_IN_WHEEL[backend]}"
        )
        yield runner.issue(
            text, CONFLICT, "remove it, and build the program into the firmware as docs/mcu.md describes"
        )


_LIMITS = ("min", "max", "max_drop", "max_rise")
"""Limits of a metric; it needs at least one."""


def _check_accuracy(accuracy: Raw) -> Iterator[Issue]:
    if isinstance(accuracy.value, Mapping) and not any(nearest(key, _LIMITS) for key in accuracy.table):
        hint = example("set the minimum, such as {}", {"min": 0.95})
        yield accuracy.issue(
            "has no limit; expected at least one of `min`, `max`, `max_drop` and `max_rise`",
            MISSING_KEY,
            hint,
            at="min",
        )
    least, most = accuracy.range("min", "max")
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        text = f"is {literal(least)}, more than `max`, which is {literal(most)}"
        yield accuracy["min"].issue(text, CONFLICT, "set `min` to at most `max`")


def check_io(config: Raw) -> Iterator[Issue]:
    """Check that each method and each input in ``io`` is declared.

    A saved program may have inputs that the config does not declare. Only the link can check the names of such inputs.
    """
    methods = method_names(config)
    for target in config["targets"].tables:
        for name in target["io"].table:
            method = target["io"][name]
            yield from _check_scheme(config, target, method["quantized"])
            if name in methods:
                yield from _check_io_inputs(method["inputs"], config["methods"][name]["inputs"], name)
                yield from _check_quantized(method["quantized"], config["methods"][name]["inputs"], name)
            elif config.is_settled("methods") and methods:
                hint = suggest(name, methods, listed("methods", methods))
                yield method.issue(": there is no such method", REFERENCE, hint)


def _check_io_inputs(owners: Raw, declared: Raw, method: str) -> Iterator[Issue]:
    names = [tensor["name"].value for tensor in declared.elements]
    if isinstance(declared.value, list) and all(isinstance(name, str) for name in names):
        for name in owners.table:
            if name not in names:
                hint = suggest(name, names, listed("inputs", names, f"`{method}` takes no inputs"))
                yield owners[name].issue(f": `{method}` has no such input", REFERENCE, hint)


def _check_scheme(config: Raw, target: Raw, quantized: Raw) -> Iterator[Issue]:
    """Check that a target with quantized inputs or outputs uses static quantization."""
    if not quantized.value:
        return
    if target.lacks("quantize"):
        hint = example("add {}", {"quantize": next(iter(config["quantize"].table), "int8")}, table=str(target))
        yield quantized.issue(f"needs `{target['quantize']}`: the target is not quantized", CONFLICT, hint)
        return
    name = target["quantize"].value
    scheme = config["quantize"][name] if isinstance(name, str) else Raw(None)
    if scheme["scheme"].value == "8da4w" or scheme["dynamic"].value is True:
        text = f"needs static quantization, but `{scheme}` computes scales of activations at run time"
        yield quantized.issue(text, CONFLICT, "remove it, or use another scheme")


def _check_quantized(quantized: Raw, declared: Raw, method: str) -> Iterator[Issue]:
    """Check that each name belongs to a float32 input, or has the form of an output's name, such as ``output0``."""
    dtypes = {tensor["name"].value: tensor["dtype"].value for tensor in declared.elements}
    if not all(isinstance(name, str) for name in dtypes) or not isinstance(declared.value, list):
        return
    for item in quantized.elements:
        if not isinstance(item.value, str):
            continue
        dtype = dtypes.get(item.value, "float32")
        if item.value not in dtypes and not re.fullmatch(r"output(0|[1-9]\d*)", item.value):
            hint = suggest(item.value, dtypes, listed("inputs", dtypes, "the first output is `output0`"), literal)
            yield item.issue(f": `{method}` has no input or output {literal(item.value)}", REFERENCE, hint)
        elif isinstance(dtype, str) and dtype != "float32":
            text = f": the input {literal(item.value)} is {dtype}, and only inputs of float32 are quantized"
            yield item.issue(text, CONFLICT, "remove it")


def check_profiles(config: Raw) -> Iterator[Issue]:
    """Report each key that a profile must not contain."""
    for profile in config["profiles"].tables:
        for key in NOT_IN_PROFILES:
            if key in profile:
                hint = "move it to the top of the file, or remove it"
                yield profile[key].issue(f": a profile cannot contain `{key}`", NOT_IN_PROFILE, hint)
