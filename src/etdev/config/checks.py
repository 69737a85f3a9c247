"""Rules that join several keys. They read raw data, so that their findings come together with all others.

Each function takes the merged data, which may be wrong anywhere: what is not of the right shape is passed over, since
the models report it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.issues import (
    CONFLICT,
    DUPLICATE,
    MISSING_KEY,
    NOT_IN_PROFILE,
    REFERENCE,
    WRONG_TYPE,
    WRONG_VALUE,
    Check,
    Issue,
)
from etdev.config.keys import KeyPath, format_key, nearest
from etdev.config.layers import NOT_IN_PROFILES
from etdev.config.notation import kind, literal, short

_SOURCES = ("entry", "hf", "pt2")


def check_model_source(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Exactly one of ``entry``, ``hf`` and ``pt2``, with the keys that go with it and no others."""
    if "model" not in data or not isinstance(data["model"], Mapping):
        return
    model = data["model"]
    present = [key for key in model if key in _SOURCES]
    if _meant_source(data) is None:
        yield Issue(
            ("model", "entry"),
            "`model` does not say where the model comes from; expected one of `entry`, `hf` and `pt2`",
            MISSING_KEY,
            'for a function that makes the module: entry = "module:callable"',
        )
    for key in present[1:]:
        yield _conflict(key, f"`model.{present[0]}` already says where the model comes from", "keep one of the two")
    if len(present) == 1:
        yield from _check_companions(model, present[0])


def _check_companions(model: Mapping[str, Any], source: str) -> Iterator[Issue]:
    if source == "pt2" and (model.get("trust") is False or nearest("trust", model) is None):
        key: KeyPath = ("model", "trust" if "trust" in model else "pt2")
        message = "`model.pt2` needs `trust = true`: loading such a file may run code that it contains"
        yield Issue(key, message, CONFLICT, "if you trust where the file comes from, add `trust = true`")
    if source != "pt2" and model.get("trust") is True:
        yield _conflict("trust", "only a `pt2` model needs it", "remove it")
    if source != "entry" and "weights" in model:
        yield _conflict("weights", f"a `{source}` model brings its own", "remove it")
    if source == "pt2" and "kwargs" in model:
        yield _conflict("kwargs", "a `pt2` model is already made", "remove it")
    yield from _check_revision(model)


def _check_revision(model: Mapping[str, Any]) -> Iterator[Issue]:
    name = model.get("hf")
    is_hub_name = isinstance(name, str) and name != "" and not is_local(name)
    if is_hub_name and "revision" not in model and nearest("revision", model) is None:
        yield Issue(
            ("model", "hf"),
            f"`model.hf` is {short(name)}, a name on the hub, which needs `revision`",
            CONFLICT,
            f"add the commit hash as `revision`; a local directory is written {literal(f'./{name}')}",
        )
    if "revision" in model and not is_hub_name and not (name is not None and not isinstance(name, str)):
        yield _conflict("revision", "only a model from the hub (`hf`) has one", "remove it")


def is_local(hf: str) -> bool:
    """Whether ``model.hf`` is a directory, and not a name on the hub."""
    return hf in (".", "..") or hf.startswith(("./", "../", "/"))


def check_methods(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Which methods there have to be, or may be, for the source of the model."""
    source = _meant_source(data)
    is_pt2 = source == "pt2"
    methods = data.get("methods", {})
    if is_pt2:
        for name in _table(data, "methods"):
            if name != "forward":
                message = f"`{format_key(('methods', name))}`: a `pt2` model has the method `forward` only"
                yield Issue(("methods", name), message, CONFLICT, "remove this method")
    elif methods == {} and source is not None and nearest("methods", [key for key in data if key != "methods"]) is None:
        message = "`methods` names no method to export"
        hint = 'add one: [methods.forward] with inputs = [{ name = "x", dtype = "float32", shape = [1, 8] }]'
        yield Issue(("methods",), message, MISSING_KEY, hint)
    for name, method in _tables(data, "methods"):
        if source is not None and not is_pt2 and "inputs" not in method and nearest("inputs", method) is None:
            yield Issue(
                ("methods", name, "inputs"),
                f"`{format_key(('methods', name, 'inputs'))}` is missing; expected a list of the method's tensors",
                MISSING_KEY,
                'for example inputs = [{ name = "x", dtype = "float32", shape = [1, 8] }]',
            )
    for name in _table(data, "constants"):
        if name in _table(data, "methods"):
            key = format_key(("constants", name))
            message = f"`{key}` and `{format_key(('methods', name))}` have the same name"
            yield Issue(("constants", name), message, DUPLICATE, "a program's methods and constants share their names")


def check_dims(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Dynamic dimensions: each is declared, used, and has a range."""
    for name, method in _tables(data, "methods"):
        path: KeyPath = ("methods", name)
        dims, are_known = _table(method, "dims"), _is_settled(method, "dims")
        used: set[str] = set()
        names: dict[str, int] = {}
        for index, tensor in enumerate(_list_of_tables(method, "inputs")):
            shape = tensor.get("shape")
            names_in_shape = _names_in(shape)
            used |= names_in_shape | {near for name in names_in_shape if (near := nearest(name, dims))}
            if are_known:
                yield from _check_shape(shape, dims, (*path, "inputs", index, "shape"))
            yield from _check_input_name(tensor, names, path, index)
        for dim, limits in dims.items():
            yield from _check_dim(dim, limits, path, is_used=dim in used or not _shapes_are_legible(method))


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
            hint = f"did you mean {literal(near)}?" if near else f"declare it: {declared}.{size} = {{ max = 32 }}"
            yield Issue(key, message, REFERENCE, hint)


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
    least, most = _pair(limits, "min", "max")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        message = f"`{format_key((*key, 'min'))}` is {least}, more than `max`, which is {most}"
        yield Issue((*key, "min"), message, CONFLICT, "make `min` at most `max`")


def check_quantization(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Targets name schemes that exist; schemes fit the methods and the source of the model."""
    schemes = _table(data, "quantize")
    for name, target in _tables(data, "targets"):
        wanted = target.get("quantize")
        if isinstance(wanted, str) and wanted not in schemes and _is_settled(data, "quantize"):
            key: KeyPath = ("targets", name, "quantize")
            message = f"`{format_key(key)}` is {short(wanted)}, but there is no `{format_key(('quantize', wanted))}`"
            near = nearest(wanted, schemes)
            hint = (
                f"did you mean {literal(near)}?" if near else _there_are("schemes", schemes, "add a [quantize.X] table")
            )
            yield Issue(key, message, REFERENCE, hint)
    for name, scheme in _tables(data, "quantize"):
        if scheme.get("scheme") == "pt2e-xnnpack":
            yield from _check_calibration(data, ("quantize", name), scheme)
        elif scheme.get("scheme") == "8da4w" and "pt2" in _table(data, "model"):
            message = (
                f"`{format_key(('quantize', name))}`: 8da4w works on the module, which a `pt2` model no longer has"
            )
            yield Issue(("quantize", name, "scheme"), message, CONFLICT, 'use "pt2e-xnnpack"')


def _check_calibration(data: Mapping[str, Any], path: KeyPath, scheme: Mapping[str, Any]) -> Iterator[Issue]:
    key = (*path, "calibration")
    name = format_key(key)
    methods = list(_table(data, "methods")) or (["forward"] if "pt2" in _table(data, "model") else [])
    calibration = scheme.get("calibration")
    if "calibration" not in scheme:
        if scheme.get("dynamic", False) is False and nearest("calibration", scheme) is None:
            message = f"`{name}` is missing; static quantization needs inputs to calibrate on"
            yield Issue(key, message, MISSING_KEY, 'add calibration = "module:callable", or dynamic = true')
    elif isinstance(calibration, str) and len(methods) > 1:
        table = ", ".join(f"{method} = {literal(calibration)}" for method in methods)
        message = f"`{name}` is one callable, but there are {len(methods)} methods"
        yield Issue(key, message, CONFLICT, f"name one for each: {{ {table} }}")
    elif isinstance(calibration, Mapping) and methods:
        lacking = [method for method in methods if method not in calibration]
        if lacking and all(method in methods for method in calibration) and scheme.get("dynamic", False) is False:
            message = f"`{format_key((*key, lacking[0]))}` is missing; each method has to be calibrated"
            yield Issue((*key, lacking[0]), message, MISSING_KEY, f'add {lacking[0]} = "module:callable"')
        for method in calibration:
            if method not in methods:
                near = nearest(method, methods)
                hint = f"did you mean `{near}`?" if near else _there_are("methods", methods)
                message = f"`{format_key((*key, method))}` names no method"
                yield Issue((*key, method), message, REFERENCE, hint)


def check_targets(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Keys of one target that do not go together."""
    for name, target in _tables(data, "targets"):
        path: KeyPath = ("targets", name)
        steps = _list_of_tables(target, "partitioners")
        for index, step in enumerate(steps[:-1]):
            if step.get("backend") == "portable":
                key = (*path, "partitioners", index, "backend")
                message = (
                    f'`{format_key(key)}` is "portable", which takes every op that is left: nothing reaches the rest'
                )
                yield Issue(key, message, CONFLICT, "put it last, or leave it out: what no backend takes is portable")
        runtime = _table(target, "runtime")
        if "kernels" in runtime and "operators" in runtime:
            key = (*path, "runtime", "operators")
            message = f"`{format_key(key)}` and `kernels` exclude each other: both say which operators the runtime has"
            yield Issue(key, message, CONFLICT, "keep one of the two")
        yield from _check_accuracy(_table(target, "verify"), (*path, "verify", "accuracy"))


def _check_accuracy(verify: Mapping[str, Any], path: KeyPath) -> Iterator[Issue]:
    accuracy = verify.get("accuracy")
    if not isinstance(accuracy, Mapping):
        return
    if "min" not in accuracy and "max" not in accuracy and not any(nearest(key, ("min", "max")) for key in accuracy):
        message = f"`{format_key(path)}` gates nothing; expected `min`, `max`, or both"
        yield Issue((*path, "min"), message, MISSING_KEY, "add the smallest value that passes, such as min = 0.95")
    least, most = _pair(accuracy, "min", "max")
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        message = f"`{format_key((*path, 'min'))}` is {literal(least)}, more than `max`, which is {literal(most)}"
        yield Issue((*path, "min"), message, CONFLICT, "make `min` at most `max`")


def check_constants(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Whole numbers fit the program's 64 bits."""
    for name, value in _table(data, "constants").items():
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            key: KeyPath = ("constants", name)
            yield Issue(key, f"`{format_key(key)}` is {short(value)}; expected one that fits in 64 bits", WRONG_VALUE)


def check_profiles(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Keys that a profile cannot hold."""
    for name, profile in _tables(data, "profiles"):
        for key in NOT_IN_PROFILES:
            if key in profile:
                path: KeyPath = ("profiles", name, key)
                message = f"`{format_key(path)}`: a profile cannot contain `{key}`"
                yield Issue(path, message, NOT_IN_PROFILE, "move it to the top of the file, or remove it")


def check_kwargs(data: Mapping[str, Any]) -> Iterator[Issue]:
    """``model.kwargs`` holds what both formats can write."""
    yield from _check_free(_table(data, "model").get("kwargs"), ("model", "kwargs"))


def _check_free(value: object, path: KeyPath) -> Iterator[Issue]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _check_free(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check_free(item, (*path, index))
    elif len(path) > len(("model", "kwargs")) and kind(value) in ("nothing", "date", "bytes"):
        hint = "leave the key out" if value is None else "write it as text, in quotes"
        message = f"`{format_key(path)}` is {short(value)}; expected true or false, a number, text, a list, or a table"
        yield Issue(path, message, WRONG_TYPE, hint)


CHECKS: tuple[Check, ...] = (
    check_model_source,
    check_methods,
    check_dims,
    check_quantization,
    check_targets,
    check_constants,
    check_profiles,
    check_kwargs,
)
"""Every rule of the config itself; backends add theirs."""


def _conflict(key: str, reason: str, hint: str) -> Issue:
    return Issue(("model", key), f"`model.{key}` does not belong here: {reason}", CONFLICT, hint)


def _there_are(what: str, names: Any, otherwise: str | None = None) -> str | None:
    return f"{what} here: {', '.join(names)}" if names else otherwise


def _is_settled(data: Mapping[str, Any], key: str) -> bool:
    """Whether a table is there, or plainly is not: neither malformed nor misspelled, which the models report."""
    return isinstance(data[key], Mapping) if key in data else nearest(key, data) is None


def _meant_source(data: Mapping[str, Any]) -> str | None:
    """Which key states the model's source, misspelled or not; None if that cannot be told."""
    model = _table(data, "model")
    stated = next((key for key in _SOURCES if key in model), None)
    return stated or next((meant for key in model if (meant := nearest(key, _SOURCES))), None)


def _pair(table: object, first: str, second: str) -> tuple[object, object]:
    if not isinstance(table, Mapping):
        return None, None
    values = table.get(first), table.get(second)
    return (None, None) if any(isinstance(value, bool) for value in values) else values


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _tables(data: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, table in _table(data, key).items():
        if isinstance(table, Mapping):
            yield name, table


def _list_of_tables(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The elements of a list, with an empty table for each that is not one, so that indices stay right."""
    value = data.get(key)
    return [item if isinstance(item, Mapping) else {} for item in value] if isinstance(value, list) else []
