"""Checks of methods, their inputs and dimensions, and constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.checks.model import meant_source
from etdev.config.checks.raw import is_settled, list_of_tables, pair, table_at, tables_at
from etdev.config.describe.notation import example, literal, short
from etdev.config.issues import CONFLICT, DUPLICATE, MISSING_KEY, REFERENCE, WRONG_VALUE, Issue
from etdev.config.keys import KeyPath, format_key, nearest

_INPUTS = [{"name": "x", "dtype": "float32", "shape": [1, 8]}]
"""One input, for hints."""


def check_methods(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check that the methods fit the source of the model, and that no constant has the name of a method."""
    source = meant_source(data)
    is_pt2 = source == "pt2"
    methods = data.get("methods", {})
    if is_pt2:
        for name in table_at(data, "methods"):
            if name != "forward":
                message = f"`{format_key(('methods', name))}`: a `pt2` model has the method `forward` only"
                yield Issue(("methods", name), message, CONFLICT, "remove this method")
    elif methods == {} and source is not None and nearest("methods", [key for key in data if key != "methods"]) is None:
        message = "`methods` names no method to export"
        hint = example("add one: {}", {"inputs": _INPUTS}, table="methods.forward")
        yield Issue(("methods",), message, MISSING_KEY, hint)
    for name, method in tables_at(data, "methods"):
        if source is not None and not is_pt2 and "inputs" not in method and nearest("inputs", method) is None:
            yield Issue(
                ("methods", name, "inputs"),
                f"`{format_key(('methods', name, 'inputs'))}` is missing; expected a list of the method's tensors",
                MISSING_KEY,
                example("for example {}, or [] for none", {"inputs": _INPUTS}),
            )
    for name in table_at(data, "constants"):
        if name in table_at(data, "methods"):
            key = format_key(("constants", name))
            message = f"`{key}` and `{format_key(('methods', name))}` have the same name"
            yield Issue(("constants", name), message, DUPLICATE, "a program's methods and constants share their names")


def check_dims(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check that dynamic dimensions are declared and used, that ranges are valid, and that input names are unique."""
    for name, method in tables_at(data, "methods"):
        path: KeyPath = ("methods", name)
        dims, are_known = table_at(method, "dims"), is_settled(method, "dims")
        legible = _shapes_are_legible(method) or (meant_source(data) == "pt2" and is_settled(method, "inputs"))
        used: set[str] = set()
        names: dict[str, int] = {}
        for index, tensor in enumerate(list_of_tables(method, "inputs")):
            shape = tensor.get("shape")
            names_in_shape = _names_in(shape)
            used |= names_in_shape | {near for name in names_in_shape if (near := nearest(name, dims))}
            if are_known:
                yield from _check_shape(shape, dims, (*path, "inputs", index, "shape"))
            yield from _check_input_name(tensor, names, path, index)
        for dim, limits in dims.items():
            yield from _check_dim(dim, limits, path, is_used=dim in used or not legible)


def _names_in(shape: object) -> set[str]:
    return {size for size in shape if isinstance(size, str)} if isinstance(shape, list) else set()


def _shapes_are_legible(method: Mapping[str, Any]) -> bool:
    inputs = method.get("inputs")
    return isinstance(inputs, list) and all(
        isinstance(tensor, Mapping)
        and isinstance(tensor.get("shape"), list)
        and all(isinstance(size, int | str) and not isinstance(size, bool) for size in tensor["shape"])
        for tensor in inputs
    )


def _check_shape(shape: object, dims: Mapping[str, Any], path: KeyPath) -> Iterator[Issue]:
    for axis, size in enumerate(shape if isinstance(shape, list) else ()):
        if isinstance(size, str) and size.isidentifier() and size not in dims:
            key = (*path, axis)
            declared = format_key((*path[:2], "dims"))
            message = f"`{format_key(key)}` is {literal(size)}, which `{declared}` does not declare"
            near = nearest(size, dims)
            declare = example("declare it: {}", {size: {"max": 32}}, table=declared)
            yield Issue(key, message, REFERENCE, f"did you mean {literal(near)}?" if near else declare)


def _check_input_name(tensor: Mapping[str, Any], names: dict[str, int], path: KeyPath, index: int) -> Iterator[Issue]:
    name = tensor.get("name")
    if isinstance(name, str) and names.setdefault(name, index) != index:
        key = (*path, "inputs", index, "name")
        message = f"`{format_key(key)}` is {literal(name)}, which input {names[name]} is called already"
        yield Issue(key, message, DUPLICATE, "give each input a name of its own")


def _check_dim(dim: str, limits: object, path: KeyPath, *, is_used: bool) -> Iterator[Issue]:
    key = (*path, "dims", dim)
    if not is_used:
        message = f"`{format_key(key)}` is used by no shape of `{format_key((*path, 'inputs'))}`"
        yield Issue(key, message, REFERENCE, "name it in a shape, or remove it")
    least, most = pair(limits, "min", "max")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        message = f"`{format_key((*key, 'min'))}` is {least}, more than `max`, which is {most}"
        yield Issue((*key, "min"), message, CONFLICT, "make `min` at most `max`")


def check_constants(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check that whole numbers fit into 64 bits."""
    for name, given in table_at(data, "constants").items():
        path: KeyPath = ("constants", name)
        numbered = {(*path, index): value for index, value in enumerate(given)} if isinstance(given, list) else None
        for key, value in (numbered or {path: given}).items():
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                message = f"`{format_key(key)}` is {short(value)}; expected a whole number of 64 bits"
                yield Issue(key, message, WRONG_VALUE)
