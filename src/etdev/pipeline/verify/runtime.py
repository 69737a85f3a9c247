"""Rung *runtime*: does the stock ExecuTorch runtime compute what eager PyTorch computes, on the config's samples?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from etdev.config.models import Verify
from etdev.pipeline.inputs import Signature
from etdev.pipeline.result import OutputError, RungResult
from etdev.pipeline.verify.compare import Difference, required_snr_db, worst_excess
from etdev.pipeline.verify.extremes import EXTREMES, Shapes, check_extremes, shapes_of
from etdev.pipeline.verify.reference import compute
from etdev.pipeline.verify.subject import Findings, Problem, Subject
from etdev.runtime.stock import ProgramFailureError, StockRuntime


@dataclass
class _Output:
    """Everything known about one output of a method."""

    against_reference: Difference
    against_float: Difference
    reference_against_float: Difference
    out_of_tolerance: float = -math.inf


def check_runtime(subject: Subject, runtime: StockRuntime) -> RungResult:
    """Run every method on every sample, each on initial state, and compare every output.

    A crash, a wrong shape or dtype, or an error beyond the default for the dtype makes a broken artifact; an error
    beyond the config's own ``atol``, ``rtol`` or ``min_snr_db`` a missed gate. Where the samples leave out the ends of
    a dynamic range, those are run on made-up inputs, which count for no figure and no limit of the config.
    """
    findings = Findings()
    try:
        for method, signature in subject.reference.signatures.items():
            _check_method(subject, runtime, method, signature, findings)
        _check_constants(subject, runtime, findings)
    except ProgramFailureError as error:
        findings.broken.append(subject.broken(f"the runtime failed: {error}"))
    problems = (*findings.broken, *findings.missed)
    if problems:
        return RungResult(
            rung="runtime",
            status="failed",
            gate=not findings.broken,
            summary=problems[0].text,
            problems=tuple(problem.text for problem in problems),
            where=subject.project.where(*problems[0].key),
            hint=problems[0].hint,
            outputs=tuple(findings.outputs),
        )
    return RungResult(
        rung="runtime", status="passed", summary=_summary(subject, findings), outputs=tuple(findings.outputs)
    )


def _check_method(
    subject: Subject, runtime: StockRuntime, method: str, signature: Signature, findings: Findings
) -> None:
    outputs: list[_Output] = []
    seen: set[Shapes] = set()
    for index, inputs in enumerate(subject.samples[method]):
        expected = compute(subject.project, subject.user, subject.reference, method, inputs)
        original = (
            compute(subject.project, subject.user, subject.float_model, method, inputs)
            if subject.quantized
            else expected
        )
        try:
            found = runtime.call(method, inputs, fresh=True)
        except ProgramFailureError as error:
            shapes = ", ".join(str(list(shape)) for shape in shapes_of(inputs))
            text = f"method {method!r} failed on sample {index} (inputs {shapes}): {error}"
            findings.broken.append(subject.broken(text))
            return
        if len(found) != len(expected):
            text = f"method {method!r} gives {len(found)} outputs, eager PyTorch gives {len(expected)}"
            findings.broken.append(subject.broken(text))
            return
        for position, (value, wanted, plain) in enumerate(zip(found, expected, original, strict=True)):
            if index == 0:
                outputs.append(_new_output(wanted, subject.compute_dtype))
            _add(outputs[position], value, wanted, plain, index, subject.settings)
        seen.add(shapes_of(inputs))
        findings.samples += 1
    for position, output in enumerate(outputs):
        _judge(subject, method, position, output, findings)
    check_extremes(subject, runtime, method, signature, seen, findings)


def _new_output(wanted: Any, compute_dtype: str) -> _Output:
    dtype = str(getattr(wanted, "dtype", type(wanted).__name__)).removeprefix("torch.")
    return _Output(Difference(dtype, compute_dtype), Difference(dtype, compute_dtype), Difference(dtype, compute_dtype))


def _add(output: _Output, value: Any, wanted: Any, plain: Any, index: int, settings: Verify) -> None:
    before = len(output.against_reference.problems)
    output.against_reference.add(value, wanted, index)
    if len(output.against_reference.problems) > before:
        return
    output.against_float.add(value, plain, index)
    output.reference_against_float.add(wanted, plain, index)
    if hasattr(wanted, "data_ptr") and (settings.atol is not None or settings.rtol is not None):
        excess = worst_excess(value, wanted, settings.atol or 0.0, settings.rtol or 0.0)
        output.out_of_tolerance = max(output.out_of_tolerance, excess)


def _judge(subject: Subject, method: str, position: int, output: _Output, findings: Findings) -> None:
    difference = output.against_reference
    snr = difference.snr_db
    float_snr = output.against_float.snr_db if subject.quantized else snr
    label = f"output {position} of {method!r}"
    if difference.problems:
        findings.broken.append(subject.broken(f"{label}: {difference.problems[0]}"))
        return
    findings.outputs.append(
        OutputError(
            method=method,
            output=position,
            dtype=difference.dtype,
            max_abs_error=difference.max_abs_error,
            allowed=difference.allowed if math.isfinite(difference.allowed) else 0.0,
            snr_db=snr,
            float_snr_db=float_snr if subject.quantized else None,
        )
    )
    if difference.excess > 0 and snr is not None:
        needed = required_snr_db(output.reference_against_float.snr_db) if subject.quantized else None
        if needed is None:
            text = (
                f"{label} is off by {difference.max_abs_error:.3g}, more than the {difference.allowed:.3g} that "
                f"{difference.dtype} allows by default"
            )
            findings.broken.append(subject.broken(text))
        elif snr < needed:
            text = f"{label} has {snr:.1f} dB against the quantized model before lowering, {needed:.1f} dB is the least"
            findings.broken.append(subject.broken(text))
    _judge_gates(subject, label, output, float_snr, findings)


def _judge_gates(subject: Subject, label: str, output: _Output, float_snr: float | None, findings: Findings) -> None:
    settings = subject.settings
    table = ("targets", subject.target, "verify")
    if output.out_of_tolerance > 0:
        text = (
            f"{label} exceeds the config's tolerance (atol {settings.atol or 0:g}, rtol {settings.rtol or 0:g}) "
            f"by {output.out_of_tolerance:.3g}"
        )
        hint = (
            f"kernels round otherwise than eager PyTorch: allow for the output's max abs error, "
            f"{output.against_reference.max_abs_error:.2g}, or compute it in a wider dtype"
        )
        findings.missed.append(Problem(text, (*table, "rtol" if settings.atol is None else "atol"), hint))
    if settings.min_snr_db is not None and float_snr is not None and float_snr < settings.min_snr_db:
        text = f"{label} has {float_snr:.1f} dB against the float model, min_snr_db is {settings.min_snr_db:g}"
        hint = (
            "calibrate on more or other data, choose a scheme of more bits, or lower min_snr_db"
            if subject.quantized
            else "lower min_snr_db: kernels round otherwise than eager PyTorch"
        )
        findings.missed.append(Problem(text, (*table, "min_snr_db"), hint))


def _check_constants(subject: Subject, runtime: StockRuntime, findings: Findings) -> None:
    for name, value in subject.project.config.constants.items():
        found = runtime.call(name, (), fresh=True)
        if list(found) != [value]:
            text = f"constant method {name!r} answers {list(found)!r}, not {value!r}"
            hint = f"build it again: `etdev build -t {subject.target}`"
            findings.broken.append(Problem(text, ("constants", name), hint))


def _summary(subject: Subject, findings: Findings) -> str:
    worst = max((output.max_abs_error for output in findings.outputs), default=0.0)
    ratios = [output.snr_db for output in findings.outputs if output.snr_db is not None]
    ran = f"{findings.samples} sample{'s' * (findings.samples != 1)}"
    ends = " and ".join(name for name in EXTREMES if name in findings.extremes)
    if ends:
        ran += f" and the {ends} sizes"
    parts = [f"{ran}, max abs error {worst:.2g}"]
    parts.append(f"SNR {min(ratios):.1f} dB" if ratios else "equal")
    if subject.quantized:
        to_float = [output.float_snr_db for output in findings.outputs if output.float_snr_db is not None]
        parts[-1] += f" against the quantized model, {min(to_float):.1f} dB against float" if to_float else ""
    if ends and subject.quantized:
        parts.append(f"at the {ends} sizes only shapes and dtypes are compared")
    if findings.untried:
        parts.append(f"sizes not tried: {', '.join(findings.untried)}")
    if subject.weak:
        parts.append(f"weak: random inputs for {', '.join(sorted(subject.weak))}")
    return "; ".join(parts)
