"""Comparison of a method's outputs with the reference over many calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from etdev.config.models import Verify
from etdev.config.tables.schemes import Pt2e, Scheme
from etdev.execution.runtimes import Runtime
from etdev.pipeline.results.result import OutputError
from etdev.pipeline.stages.inputs import Call
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.advice import more_accurate
from etdev.verification.agreement import allowed_elements
from etdev.verification.compare import (
    Difference,
    Sums,
    allowed_steps,
    is_whole,
    required_snr_db,
    steps_apart,
    worst_excess,
)
from etdev.verification.output_findings import Findings, Problem
from etdev.verification.subject import BuiltTarget

_MOST_MODULES = 3
"""Largest number of modules that a message names."""

_MOST_ROUNDED = 0.5
"""Share of the elements of an output up to which rounding may be the reason why they differ."""


@dataclass
class ComparedOutput:
    """Differences of one output from the reference and from the float model, over all calls."""

    method: str
    position: int
    """Position among the method's outputs, from 0."""
    against_reference: Difference
    against_float: Difference
    reference_against_float: Difference
    out_of_tolerance: float = -math.inf
    """Largest excess of an error over the config's tolerance (``atol`` and ``rtol``); positive if out of tolerance."""
    calls: int = 0
    """Number of compared calls."""

    @classmethod
    def begin(cls, method: str, position: int, wanted: Any, compute_dtype: str) -> Self:
        """Return an empty comparison for an output with the dtype of ``wanted``, an output of the reference."""
        dtype = str(getattr(wanted, "dtype", type(wanted).__name__)).removeprefix("torch.")
        first, second, third = (Difference(dtype, compute_dtype) for _ in range(3))
        second.sums = Sums()
        return cls(method, position, first, second, third)

    def add(self, value: Any, wanted: Any, plain: Any, at: str, settings: Verify) -> None:
        """Compare the program's output for one call with the outputs of the reference and the float model.

        ``value`` is the program's output. ``wanted`` is the reference's output, and ``plain`` is the float model's,
        the same object if the reference is the float model. ``at`` describes the call.
        """
        self.calls += 1
        before = len(self.against_reference.problems)
        self.against_reference.add(value, wanted, at)
        if len(self.against_reference.problems) > before:
            return
        if plain is wanted and not self.against_reference.whole:
            self.against_float = self.against_reference
        else:
            self.against_float.add(value, plain, at)
            self.reference_against_float.add(wanted, plain, at)
        if self.against_reference.whole:
            return
        if hasattr(wanted, "data_ptr") and (settings.atol is not None or settings.rtol is not None):
            excess = worst_excess(value, wanted, settings.atol or 0.0, settings.rtol or 0.0)
            self.out_of_tolerance = max(self.out_of_tolerance, excess)


class Comparison:
    """Comparison of a program's outputs with those of the reference and the float model."""

    def __init__(self, built: BuiltTarget, runtime: Runtime, findings: Findings, scope: str) -> None:
        """``scope`` says in messages which calls are compared, such as ``on the samples``."""
        self._built, self._runtime, self._findings, self._scope = built, runtime, findings, scope
        self._outputs: dict[tuple[str, int], ComparedOutput] = {}

    def call(self, call: Call, expected: Sequence[Any], plain: Sequence[Any], at: str, *, fresh: bool) -> bool:
        """Make a call, and compare its outputs with those of the reference and the float model.

        ``expected`` contains the outputs of the reference, and ``plain`` those of the float model. ``at`` describes the
        call. If ``fresh`` is True, the call starts from initial state. Return False and record a problem if the call
        fails or returns a wrong number of outputs. Otherwise, return True.
        """
        try:
            found = self._runtime.call(call.method, call.inputs, fresh=fresh)
        except ProgramFailureError as error:
            shapes = ", ".join(str(list(tensor.shape)) for tensor in call.inputs)
            return self._broken(f"method {call.method!r} failed on {at} (inputs {shapes}): {error}")
        if len(found) != len(expected):
            return self._broken(
                f"method {call.method!r} returns {len(found)} outputs, but eager PyTorch returns {len(expected)} ({at})"
            )
        for position, (value, wanted, original) in enumerate(zip(found, expected, plain, strict=True)):
            key = call.method, position
            if key not in self._outputs:
                self._outputs[key] = ComparedOutput.begin(*key, wanted, self._built.compute_dtype)
            self._outputs[key].add(value, wanted, original, at, self._built.settings)
        return True

    def judge(self) -> None:
        """Add the figures, broken outputs and missed limits of all compared outputs to the findings."""
        for output in self._outputs.values():
            _judge(self._built, output, self._findings, self._scope)

    def _broken(self, text: str) -> bool:
        self._findings.broken.append(self._built.broken(text))
        return False


def judge_elements(built: BuiltTarget, findings: Findings) -> None:
    """Compare the elements of each output that agree with the limit, over all compared calls.

    In a quantized target without ``min_agreement``, as many elements may differ as quantization changed.
    """
    for (method, position), compared in findings.elements.items():
        key, limit = built.least_share(whole=is_whole(compared.dtype))
        found, changed = compared.found, compared.quantized.differing
        allowed = allowed_elements(limit, found.elements, few=not built.effort.limits)
        if limit is None and built.quantized:
            allowed = changed
        if found.differing <= allowed:
            continue
        if limit is not None:
            why = f" agree, but {key} is {limit:.4g}"
        elif built.quantized:
            why = f" agree; quantization changed {changed:,}, and no more are allowed by default"
        else:
            why = f" agree; {compared.dtype} allows none by default"
        text = f"output {position} of {method!r}: {found} ({found.share}{why}; first in {found.first})"
        if found.differing > _MOST_ROUNDED * found.elements:
            findings.broken.append(built.broken(text))
        else:
            findings.broken.append(_disagreement(built, method, text, whole=is_whole(compared.dtype)))


def _disagreement(built: BuiltTarget, method: str, text: str, *, whole: bool) -> Problem:
    name, limit = built.least_share(whole=whole)
    key = ("targets", built.target, "verify", name)
    change = f"set `verify.{name}` to" if limit is None else f"lower `{name}` to"
    change += " the share of elements that must agree"
    ops = built.index_ops.get(method, ())
    if ops:
        reason = f"the method computes an index ({', '.join(ops)}), and a tie or rounding may pick another one"
        return Problem(text, key, f"{reason}: {change}")
    usual = built.broken(text)
    return Problem(text, usual.key, f"{usual.hint}; if rounding may change this output, {change}")


def _judge(built: BuiltTarget, output: ComparedOutput, findings: Findings, scope: str) -> None:
    difference = output.against_reference
    snr = difference.snr_db
    float_snr = output.against_float.snr_db if built.quantized else snr
    label = f"output {output.position} of {output.method!r}"
    if difference.problems:
        findings.broken.append(built.broken(f"{label}: {difference.problems[0]}"))
        return
    by_elements = built.counts_elements(difference)
    figures = OutputError(
        method=output.method,
        output=output.position,
        dtype=difference.dtype,
        max_abs_error=difference.max_abs_error,
        allowed=difference.allowed if math.isfinite(difference.allowed) else 0.0,
        snr_db=snr,
        float_snr_db=float_snr if built.quantized else None,
        varying_snr_db=output.against_float.varying_snr_db if built.quantized else None,
        **_steps(built, output),
        **(_counts(difference) if by_elements else {}),
    )
    findings.add_output(figures)
    if by_elements:
        findings.add_agreement(figures, difference.agreement, output.reference_against_float.agreement)
    if difference.whole:
        return
    if figures.steps is not None and figures.allowed_steps is not None and figures.steps > figures.allowed_steps:
        text = (
            f"{label} differs from the quantized model by {figures.steps} steps of {figures.step:.3g}, but at most "
            f"{figures.allowed_steps} are allowed: 1 for rounding, and the error of the quantization"
        )
        findings.broken.append(built.broken(text))
    if difference.excess > 0 and snr is not None and not by_elements:
        needed = required_snr_db(output.reference_against_float.snr_db) if built.quantized else None
        if needed is None:
            text = (
                f"{label} has an error of {difference.max_abs_error:.3g}, but {difference.dtype} allows at most "
                f"{difference.allowed:.3g} by default ({difference.worst})"
            )
            if built.index_ops.get(output.method):
                text += f"; {difference.agreement} by more"
                findings.broken.append(_disagreement(built, output.method, text, whole=False))
            else:
                findings.broken.append(built.broken(text))
        elif snr < needed:
            text = (
                f"{label} has {snr:.1f} dB against the quantized model before lowering, but needs at least "
                f"{needed:.1f} dB"
            )
            findings.broken.append(built.broken(text))
    if built.effort.limits:
        _judge_tolerance(built, label, output, findings, scope)
        _judge_ratio(built, label, output, findings, scope)


def _counts(difference: Difference) -> dict[str, int]:
    """Return the counts of elements of an output; an empty dict for an output that is no tensor."""
    counts = difference.agreement
    return {"elements": counts.elements, "differing": counts.differing} if counts.elements else {}


def _steps(built: BuiltTarget, output: ComparedOutput) -> dict[str, Any]:
    """Return a dict with an output's error in quantization steps, the size of a step, and the allowed steps.

    Return an empty dict for an output that kernels do not compute in fixed point.
    """
    step = built.steps.get((output.method, output.position))
    if step is None:
        return {}
    return {
        "step": step,
        "steps": steps_apart(output.against_reference.max_abs_error, step),
        "allowed_steps": allowed_steps(output.reference_against_float.max_abs_error, step),
    }


def _judge_tolerance(built: BuiltTarget, label: str, output: ComparedOutput, findings: Findings, scope: str) -> None:
    settings = built.settings
    if output.out_of_tolerance > 0:
        text = (
            f"{label} exceeds the config's tolerance (atol {settings.atol or 0:g}, rtol {settings.rtol or 0:g}) "
            f"by {output.out_of_tolerance:.3g} {scope}"
        )
        hint = (
            f"allow an absolute error of {output.against_reference.max_abs_error:.2g}, the largest of this output, "
            "because kernels round differently from eager PyTorch; or compute the output in a wider dtype"
        )
        key = "rtol" if settings.atol is None else "atol"
        findings.missed.append(Problem(text, ("targets", built.target, "verify", key), hint))


def _largest_local_errors(built: BuiltTarget, method: str, scheme: Scheme) -> str:
    """Describe the modules in which quantization makes the largest errors; an empty text if they are not known.

    If this run did not quantize the model, describe how to get to know them.
    """
    measure, sample = built.reference.local_errors.get(method), next(built.samples(method), None)
    if measure is None and isinstance(scheme, Pt2e):
        return "; a build with `--no-cache` also names the modules with the largest errors"
    if measure is None or sample is None:
        return ""
    errors = [f"{error.module!r} ({error.snr_db:.1f} dB)" for error in measure(sample)[:_MOST_MODULES]]
    return f"; with exact inputs, these modules have the largest errors: {', '.join(errors)}" if errors else ""


def _judge_ratio(built: BuiltTarget, label: str, output: ComparedOutput, findings: Findings, scope: str) -> None:
    """Add a missed limit to the findings if the SNR against the float model is below ``min_snr_db``."""
    limit, ratio = built.settings.min_snr_db, output.against_float.snr_db
    if limit is None or ratio is None or ratio >= limit:
        return
    text = f"{label} has {ratio:.1f} dB against the float model {scope}, but min_snr_db is {limit:g}"
    lowest = output.against_float.lowest
    if output.calls > 1 and lowest is not None:
        text += f" (worst: {lowest[1]} with {lowest[0]:.1f} dB)"
    hint = "lower min_snr_db, because kernels round differently from eager PyTorch"
    scheme = built.project.config.targets[built.target].quantize
    if scheme is not None:
        lowered, quantized = output.against_reference.snr_db, output.reference_against_float.snr_db
        text += "; it equals" if lowered is None else f"; it has {lowered:.1f} dB against"
        text += " the quantized model, "
        if quantized is not None and quantized < limit:
            settings = built.project.config.quantize[scheme]
            text += "so quantization is the cause" + _largest_local_errors(built, output.method, settings)
            hint = f"{more_accurate(settings)}, or lower min_snr_db"
        else:
            itself = "equals the float model" if quantized is None else f"has {quantized:.1f} dB"
            text += f"which itself {itself}, so lowering is the cause"
            hint = f"{built.broken(text).hint}, or lower min_snr_db"
    findings.missed.append(Problem(text, ("targets", built.target, "verify", "min_snr_db"), hint))
