"""Runs at the smallest and largest sizes of dynamic ranges, if the user's samples do not include these sizes.

The inputs are random, so some may be invalid for the model. Inputs that fail in eager PyTorch are skipped, with a
warning. The report's figures and the config's limits ignore these runs. For a quantized program, only shapes and dtypes
are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from etdev.errors import VerifyError, describe_exception
from etdev.execution.runtimes import Runtime
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.stages.eager import compute
from etdev.pipeline.stages.inputs import Signature, make_inputs
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.agreement import allowed_elements
from etdev.verification.compare import Difference, mismatch
from etdev.verification.output_findings import Findings, Problem
from etdev.verification.subject import BuiltTarget

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of all inputs of one call."""

EXTREMES = ("smallest", "largest")


def shapes_of(inputs: Tensors) -> Shapes:
    """Return the shapes of the inputs of one call."""
    return tuple(tuple(tensor.shape) for tensor in inputs)


def check_extremes(
    built: BuiltTarget, runtime: Runtime, method: str, signature: Signature, seen: set[Shapes], findings: Findings
) -> None:
    """Run a method at its smallest and its largest sizes. Skip the sizes of earlier samples (``seen``)."""
    for name, inputs in _unseen(signature, seen):
        failing = "the model itself fails there"
        try:
            compute(built.project, built.user, built.float_model, method, inputs)
            failing = "the quantized model fails there, although the float model does not"
            expected = compute(built.project, built.user, built.reference, method, inputs)
        except VerifyError as error:
            findings.untried.append(_untried(method, f"{name} sizes", inputs, failing, error.__cause__ or error))
            continue
        try:
            problem = _compare(built, expected, runtime.call(method, inputs, fresh=True))
        except ProgramFailureError as error:
            problem = f"failed: {error}"
        findings.extremes.add(name)
        if problem is not None:
            findings.broken.append(
                Problem(
                    f"method {method!r} at the {name} sizes (inputs {_shapes_text(inputs)}): {problem}",
                    ("methods", method, "dims"),
                    "narrow the range of the dims, or change code in the model that depends on sizes "
                    "(squeeze, branches on a shape)",
                )
            )


def _untried(method: str, sizes: str, inputs: Tensors, failing: str, error: BaseException) -> Problem:
    return Problem(
        f"the {sizes} of method {method!r} (inputs {_shapes_text(inputs)}) were not tried: "
        f"{failing}, on random inputs: {describe_exception(error)}",
        ("methods", method, "dims"),
        "narrow the range of the dims; or, if the values of random inputs are the reason, add a sample of these sizes",
    )


def _shapes_text(inputs: Tensors) -> str:
    return ", ".join(str(list(shape)) for shape in shapes_of(inputs))


def _unseen(signature: Signature, seen: set[Shapes]) -> Iterator[tuple[str, Tensors]]:
    if not signature.dims:
        return
    tried = set(seen)
    for name, choice in zip(EXTREMES, (signature.smallest(), signature.largest()), strict=True):
        shapes = tuple(signature.sizes(choice))
        if shapes not in tried:
            tried.add(shapes)
            yield name, make_inputs(signature, choice)


def _compare(built: BuiltTarget, expected: Sequence[Any], found: Sequence[Any]) -> str | None:
    """Return the first problem with the outputs of one call; None if all outputs match."""
    if len(found) != len(expected):
        return f"returns {len(found)} outputs, but eager PyTorch returns {len(expected)}"
    for position, (value, wanted) in enumerate(zip(found, expected, strict=True)):
        problem = mismatch(value, wanted) if built.quantized else _difference(built, value, wanted)
        if problem is not None:
            return f"output {position} {problem}"
    return None


def _difference(built: BuiltTarget, value: Any, wanted: Any) -> str | None:
    dtype = str(getattr(wanted, "dtype", type(wanted).__name__)).removeprefix("torch.")
    difference = Difference(dtype, built.compute_dtype)
    difference.add(value, wanted, "here")
    if difference.problems:
        return difference.problems[0].partition(": ")[2]
    counts = difference.agreement
    if built.counts_elements(difference):
        _, share = built.least_share(whole=difference.whole)
        is_less = counts.differing > allowed_elements(share, counts.elements, few=True)
        return f"is not the reference's: {counts} ({counts.share} agree)" if is_less else None
    if difference.excess > 0:
        return f"has an error of {difference.max_abs_error:.3g}, but {dtype} allows at most {difference.allowed:.3g}"
    return None
