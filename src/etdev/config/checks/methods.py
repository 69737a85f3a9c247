"""Checks of methods, their inputs and dimensions, and constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from etdev.config.checks.model import meant_source
from etdev.config.describe.notation import example, literal, short
from etdev.config.issues import CONFLICT, DUPLICATE, MISSING_KEY, REFERENCE, WRONG_VALUE, Issue
from etdev.config.keys import nearest, suggest
from etdev.config.raw import Raw

_INPUTS = [{"name": "x", "dtype": "float32", "shape": [1, 8]}]
"""Example of a method's inputs, for hints."""


def check_methods(config: Raw) -> Iterator[Issue]:
    """Check that the methods match the source of the model, and that no constant has the name of a method."""
    source = meant_source(config)
    methods = config["methods"]
    if source == "pt2":
        for name in methods.table:
            if name != "forward":
                text = ": a `pt2` model has only the method `forward`"
                yield methods[name].issue(text, CONFLICT, "remove this method")
    elif source is not None:
        if config.table.get("methods", {}) == {} and nearest("methods", config.table.keys() - {"methods"}) is None:
            hint = example("add one: {}", {"inputs": _INPUTS}, table="methods.forward")
            yield methods.issue("contains no method to export", MISSING_KEY, hint)
        for method in methods.tables:
            if method.lacks("inputs"):
                text = "is missing; expected a list of the method's tensors"
                hint = example("for example {}, or [] if there are none", {"inputs": _INPUTS})
                yield method["inputs"].issue(text, MISSING_KEY, hint)
    for name in config["constants"].table:
        if name in methods:
            text = f"and `{methods[name]}` have the same name"
            yield config["constants"][name].issue(
                text, DUPLICATE, "use another name: methods and constant methods share one set of names"
            )


def check_dims(config: Raw) -> Iterator[Issue]:
    """Check that dynamic dimensions are declared and used, that ranges are valid, and that input names are unique."""
    for method in config["methods"].tables:
        dims = method["dims"]
        legible = _shapes_are_legible(method) or (meant_source(config) == "pt2" and method.is_settled("inputs"))
        used: set[str] = set()
        names: dict[str, int] = {}
        for index, tensor in enumerate(method["inputs"].elements):
            for size in tensor["shape"].elements:
                if isinstance(size.value, str):
                    used |= {size.value, nearest(size.value, dims.table) or size.value}
                    if method.is_settled("dims"):
                        yield from _check_size(size, dims)
            name = tensor["name"]
            if isinstance(name.value, str) and names.setdefault(name.value, index) != index:
                text = f"is {literal(name.value)}, which is already the name of input {names[name.value]}"
                yield name.issue(text, DUPLICATE, "use a different name for each input")
        for dim in dims.table:
            yield from _check_dim(dims[dim], method, is_used=dim in used or not legible)


def _shapes_are_legible(method: Raw) -> bool:
    shapes = [tensor["shape"] for tensor in method["inputs"].elements]
    return isinstance(method["inputs"].value, list) and all(
        isinstance(shape.value, list)
        and all(isinstance(size, int | str) and not isinstance(size, bool) for size in shape.value)
        for shape in shapes
    )


def _check_size(size: Raw, dims: Raw) -> Iterator[Issue]:
    if size.value.isidentifier() and size.value not in dims:
        declare = example("declare it: {}", {size.value: {"max": 32}}, table=str(dims))
        hint = suggest(size.value, dims.table, written=literal) or declare
        yield size.issue(f"is {literal(size.value)}, which `{dims}` does not declare", REFERENCE, hint)


def _check_dim(dim: Raw, method: Raw, *, is_used: bool) -> Iterator[Issue]:
    if not is_used:
        yield dim.issue(f"is not used in a shape of `{method['inputs']}`", REFERENCE, "use it in a shape, or remove it")
    least, most = dim.range("min", "max")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        text = f"is {least}, more than `max`, which is {most}"
        yield dim["min"].issue(text, CONFLICT, "set `min` to at most `max`")
    step = dim.table.get("multiple_of")
    for key in ("min", "max"):
        size = dim.table.get(key)
        if _is_size(step) and _is_size(size) and size % step:
            near = max(size // step, 1) * step
            text = f"is {size}, which is not a multiple of `multiple_of`, {step}"
            yield dim[key].issue(text, CONFLICT, f"set `{key}` to a multiple, such as {near}")


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def check_constants(config: Raw) -> Iterator[Issue]:
    """Check that integers among the constants fit into 64 bits."""
    for name in config["constants"].table:
        constant = config["constants"][name]
        for item in constant.elements or [constant]:
            if isinstance(item.value, int) and not -(2**63) <= item.value < 2**63:
                yield item.issue(f"is {short(item.value)}; expected a whole number of 64 bits", WRONG_VALUE)
