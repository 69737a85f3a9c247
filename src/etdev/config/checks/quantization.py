"""Checks of quantization schemes: targets name existing ones, and they fit the methods and the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.checks.raw import is_settled, table_at, tables_at, there_are
from etdev.config.describe.notation import example, literal, short
from etdev.config.issues import CONFLICT, MISSING_KEY, REFERENCE, Issue
from etdev.config.keys import KeyPath, format_key, nearest


def check_quantization(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check that targets name existing schemes, and that schemes fit the methods and the source of the model."""
    schemes = table_at(data, "quantize")
    for name, target in tables_at(data, "targets"):
        wanted = target.get("quantize")
        if isinstance(wanted, str) and wanted not in schemes and is_settled(data, "quantize"):
            key: KeyPath = ("targets", name, "quantize")
            message = f"`{format_key(key)}` is {short(wanted)}, but there is no `{format_key(('quantize', wanted))}`"
            near = nearest(wanted, schemes)
            hint = (
                f"did you mean {literal(near)}?" if near else there_are("schemes", schemes, "add a table `quantize.X`")
            )
            yield Issue(key, message, REFERENCE, hint)
    for name, scheme in tables_at(data, "quantize"):
        if scheme.get("scheme") == "pt2e-xnnpack":
            yield from _check_calibration(data, ("quantize", name), scheme)
            yield from _check_granularity(("quantize", name), scheme)
        elif scheme.get("scheme") == "8da4w" and "pt2" in table_at(data, "model"):
            message = (
                f"`{format_key(('quantize', name))}`: 8da4w works on the module, which a `pt2` model no longer has"
            )
            yield Issue(("quantize", name, "scheme"), message, CONFLICT, 'use "pt2e-xnnpack"')


def _check_granularity(path: KeyPath, scheme: Mapping[str, Any]) -> Iterator[Issue]:
    """Check ``per_channel`` of dynamic quantization.

    XNNPACK takes dynamically quantized linear layers only with a scale per channel (seen with executorch 1.4.1).
    """
    if scheme.get("dynamic") is True and scheme.get("per_channel") is False:
        key = (*path, "per_channel")
        message = f"`{format_key(key)}` is false, but no delegate takes dynamic quantization with one scale per tensor"
        yield Issue(key, message, CONFLICT, "leave it out")


def _check_calibration(data: Mapping[str, Any], path: KeyPath, scheme: Mapping[str, Any]) -> Iterator[Issue]:
    key = (*path, "calibration")
    name = format_key(key)
    methods = list(table_at(data, "methods")) or (["forward"] if "pt2" in table_at(data, "model") else [])
    # A method without inputs needs no calibration inputs: one call observes it.
    needy = [method for method in methods if table_at(table_at(data, "methods"), method).get("inputs") != []]
    calibration = scheme.get("calibration")
    if "calibration" not in scheme:
        if scheme.get("dynamic", False) is False and nearest("calibration", scheme) is None:
            message = f"`{name}` is missing; static quantization needs inputs to calibrate on"
            remedy = example("add {}, or {}", {"calibration": "module:callable"}, {"dynamic": True})
            yield Issue(key, message, MISSING_KEY, remedy)
    elif isinstance(calibration, str) and len(needy) > 1:
        message = f"`{name}` is one callable, but there are {len(needy)} methods"
        yield Issue(
            key, message, CONFLICT, example("name one for each: {}", {"calibration": dict.fromkeys(needy, calibration)})
        )
    elif isinstance(calibration, Mapping) and methods:
        lacking = [method for method in needy if method not in calibration]
        if lacking and all(method in methods for method in calibration) and scheme.get("dynamic", False) is False:
            message = f"`{format_key((*key, lacking[0]))}` is missing; each method has to be calibrated"
            remedy = example("add {}", {lacking[0]: "module:callable"})
            yield Issue((*key, lacking[0]), message, MISSING_KEY, remedy)
        for method in calibration:
            if method not in methods:
                near = nearest(method, methods)
                hint = f"did you mean `{near}`?" if near else there_are("methods", methods)
                message = f"`{format_key((*key, method))}` names no method"
                yield Issue((*key, method), message, REFERENCE, hint)
