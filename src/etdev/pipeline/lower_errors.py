"""What lowering and emission raise, said in the terms of the config and of the user's model.

The texts matched here are those of executorch 1.4.1; one that is not recognised is passed on with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from etdev.errors import EmitError, EtdevError, LowerError
from etdev.pipeline.project import Project

_NOT_CORE = re.compile(r"Operator (?:torch\._ops\.)?(?P<op>\S+) is not in Core ATen")
_MIXED_DTYPES = re.compile(r"mismatched dtypes")
_MISSING_OUT = re.compile(r"Missing out variants: (?P<ops>\{.*?\})", re.DOTALL)
_CONTROL_FLOW = re.compile(r"Unsupported control flow operator: (?P<op>\w+)")
_VERBOSE = "run with -v for the whole trace"


@contextmanager
def translated_lowering(project: Project, target: str, names: list[str]) -> Iterator[None]:
    """Turn what partitioners and the edge dialect's checks raise into a :class:`~etdev.errors.LowerError`."""
    try:
        yield
    except EtdevError:
        raise
    except Exception as error:
        raise _explain_lowering(error, project, target, names) from error


def _explain_lowering(error: Exception, project: Project, target: str, names: list[str]) -> LowerError:
    text = str(error)
    where = project.where("targets", target)
    unsupported = _NOT_CORE.search(text)
    if unsupported:
        return LowerError(
            f"the op {unsupported['op']} is not one that ExecuTorch can lower, and nothing decomposes it",
            where=where,
            hint="express it by other ops in the model",
        )
    if _MIXED_DTYPES.search(text):
        op = re.search(r"(?P<op>[\w.]+\.\w+)\b", text.partition("mismatched dtypes")[2])
        return LowerError(
            "an op takes tensors of different dtypes" + (f": {op['op']}" if op else ""),
            where=where,
            hint="check the dtypes of the declared inputs against the model's weights, or convert in the model",
        )
    steps = ", ".join(names) or "no partitioner"
    hint = f"{_VERBOSE}; a target without this partitioner shows whether it is the cause" if names else _VERBOSE
    return LowerError(
        f"lowering target {target!r} failed ({steps}): {root_cause(error)}",
        where=project.where("targets", target, "partitioners") if names else where,
        hint=hint,
    )


def explain_emission(error: Exception, project: Project, target: str) -> EmitError:
    """The error to raise in place of what ``to_executorch`` raised."""
    text = str(error)
    where = project.where("targets", target)
    missing = _MISSING_OUT.search(text)
    if missing:
        return _missing_out_variants(sorted(re.findall(r"'([^']+)'", missing["ops"])), where)
    control = _CONTROL_FLOW.search(text)
    if control:
        return EmitError(
            f"ExecuTorch cannot emit {control['op']}",
            where=where,
            hint="use torch.cond, or unroll the loop in the model",
        )
    return EmitError(f"emitting target {target!r} failed: {root_cause(error)}", where=where, hint=_VERBOSE)


def _missing_out_variants(ops: list[str], where: str) -> EmitError:
    quantized = all(op.startswith(("quantized_decomposed::", "torchao::")) for op in ops)
    message = "these ops have no out variant, so no ExecuTorch kernel can run them: " + ", ".join(ops)
    if quantized:
        return EmitError(
            message,
            where=where,
            hint="they come from quantization and no delegate took them: add a partitioner that does (xnnpack)",
        )
    return EmitError(
        message,
        where=where,
        hint="register one with torch.library in a module under project.imports, or express the op by others",
    )


def root_cause(error: BaseException) -> str:
    """The first line of the innermost exception: pass managers wrap what went wrong several times."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
