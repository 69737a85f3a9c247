"""Checks of quantization schemes: the schemes must exist, and must match the methods and the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.config.describe.notation import example, literal, short
from etdev.config.issues import CONFLICT, MISSING_KEY, REFERENCE, Issue
from etdev.config.keys import suggest
from etdev.config.raw import Raw, listed
from etdev.config.tables.schemes import BACKEND_SCHEMES, SCHEMES, integer_backend

_PROCESSORS = {"ethos-u": "Ethos-U", "cortex-m": "Cortex-M"}
"""Maps each backend that takes only quantized ops to the name of its processors."""


def check_quantization(config: Raw) -> Iterator[Issue]:
    """Check each scheme that a target uses: it must exist and suit the target's processor.

    Also check that the schemes match the methods and the source of the model.
    """
    schemes = config["quantize"]
    for target in config["targets"].tables:
        wanted = target["quantize"]
        if isinstance(wanted.value, str) and wanted.value not in schemes and config.is_settled("quantize"):
            text = f"is {short(wanted.value)}, but there is no `{schemes[wanted.value]}`"
            known = listed("schemes", schemes.table, f"add a table `{schemes[wanted.value]}`")
            yield wanted.issue(text, REFERENCE, suggest(wanted.value, schemes.table, known, literal))
        elif isinstance(wanted.value, str):
            yield from _check_processor(target, schemes[wanted.value])
    for scheme in schemes.tables:
        if scheme["scheme"].value in ("pt2e-xnnpack", "arm-ethos-u", "cortex-m"):
            yield from _check_calibration(config, scheme)
            yield from _check_granularity(scheme)
        elif scheme["scheme"].value == "8da4w" and "pt2" in config["model"]:
            text = ": 8da4w needs the eager module, which a `pt2` model does not have"
            yield scheme.issue(text, CONFLICT, 'use "pt2e-xnnpack"', at="scheme")


def _check_processor(target: Raw, scheme: Raw) -> Iterator[Issue]:
    """Check that a target for an Ethos-U or a Cortex-M uses a scheme that quantizes for this processor.

    The compiler for an Ethos-U takes only ops that were quantized for this processor. The backend `cortex-m` leaves
    other ops to other backends, if the target has any.
    """
    name, used = scheme["scheme"].value, target["quantize"].value
    steps = target["partitioners"].elements
    names = {step["backend"].value for step in steps}
    backend = integer_backend(names)
    if backend is None or (backend == "cortex-m" and len(names) > 1):
        return
    if name in SCHEMES and name != BACKEND_SCHEMES[backend]:
        text = (
            f"is {short(used)} with the scheme {literal(name)}, but {backend} takes only ops quantized for "
            f"{_PROCESSORS[backend]}"
        )
        yield target["quantize"].issue(text, CONFLICT, f"use the scheme {literal(BACKEND_SCHEMES[backend])}")
        return
    for step in steps:
        compiled, quantized = step["options"]["target"], scheme["target"].value
        forms = {_is_ethos_u85(compiled.value), _is_ethos_u85(quantized)}
        if step["backend"].value == "ethos-u" and forms == {True, False}:
            text = f"is {short(compiled.value)}, but {short(used)} quantizes for {short(quantized)}"
            yield compiled.issue(text, CONFLICT, f"set `{scheme['target']}` to the same processor")


def _is_ethos_u85(processor: object) -> bool | None:
    """Return True for the name of an Ethos-U85, False for another name, and None for a value that is not text.

    The ops of an Ethos-U85 differ from those of U55 and U65.
    """
    return processor.startswith("ethos-u85") if isinstance(processor, str) else None


def _check_granularity(scheme: Raw) -> Iterator[Issue]:
    """Check that dynamic quantization uses ``per_channel``.

    XNNPACK takes dynamically quantized linear layers only if they have one scale per channel (seen with executorch
    1.4.1 and 1.5.1).
    """
    if scheme["dynamic"].value is True and scheme["per_channel"].value is False:
        text = "is false, but no delegate takes dynamic quantization with one scale per tensor"
        yield scheme["per_channel"].issue(text, CONFLICT, "remove it")


def _check_calibration(config: Raw, scheme: Raw) -> Iterator[Issue]:
    calibration = scheme["calibration"]
    is_static = "dynamic" not in scheme or scheme["dynamic"].value is False
    methods = list(config["methods"].table) or (["forward"] if "pt2" in config["model"] else [])
    # A method without inputs needs no calibration inputs: a single call is enough to observe all of its values.
    needy = [method for method in methods if config["methods"][method]["inputs"].value != []]
    if "calibration" not in scheme:
        if is_static and scheme.lacks("calibration"):
            if scheme["scheme"].value == "pt2e-xnnpack":
                remedy = example("add {}, or {}", {"calibration": "module:callable"}, {"dynamic": True})
            else:
                remedy = example("add {}", {"calibration": "module:callable"})
            text = "is missing; static quantization needs inputs to calibrate on"
            yield calibration.issue(text, MISSING_KEY, remedy)
    elif isinstance(calibration.value, str) and len(needy) > 1:
        remedy = example("set one for each method: {}", {"calibration": dict.fromkeys(needy, calibration.value)})
        yield calibration.issue(f"is one callable, but there are {len(needy)} methods", CONFLICT, remedy)
    elif isinstance(calibration.value, Mapping) and methods:
        lacking = [method for method in needy if method not in calibration]
        unknown = [method for method in calibration.table if method not in methods]
        if lacking and not unknown and is_static:
            remedy = example("add {}", {lacking[0]: "module:callable"})
            yield calibration[lacking[0]].issue("is missing; each method must be calibrated", MISSING_KEY, remedy)
        for method in unknown:
            hint = suggest(method, methods, listed("methods", methods))
            yield calibration[method].issue(": there is no such method", REFERENCE, hint)
