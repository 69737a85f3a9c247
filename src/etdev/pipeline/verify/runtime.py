"""Rung *runtime*: does the stock ExecuTorch runtime compute what eager PyTorch computes, on the config's samples?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from etdev import backends
from etdev.config.models import Verify
from etdev.pipeline.artifacts import ExportedModel, Tensors
from etdev.pipeline.inputs import Signature
from etdev.pipeline.project import Project
from etdev.pipeline.result import OutputError, RungResult
from etdev.pipeline.usercode import UserCode
from etdev.pipeline.verify.compare import RELATIVE_TOLERANCE, Difference, required_snr_db, worst_excess
from etdev.pipeline.verify.reference import compute
from etdev.runtime.stock import ProgramFailureError, StockRuntime


@dataclass(frozen=True)
class Subject:
    """What is compared: the program in the runtime, and the models that it came from."""

    project: Project
    user: UserCode
    target: str
    float_model: ExportedModel
    reference: ExportedModel
    """The quantized model before lowering, or ``float_model`` itself."""
    samples: Mapping[str, Iterable[Tensors]]
    weak: frozenset[str]
    """Methods whose samples are random."""

    @property
    def settings(self) -> Verify:
        """``[targets.X.verify]``."""
        return self.project.config.targets[self.target].verify

    @property
    def compute_dtype(self) -> str:
        """Coarsest dtype that one of the target's backends computes float32 in."""
        steps = self.project.config.targets[self.target].partitioners
        dtypes = [backends.get(step.backend).compute_dtype for step in steps]
        return max(dtypes, key=lambda dtype: RELATIVE_TOLERANCE[dtype], default="float32")

    @property
    def quantized(self) -> bool:
        """Whether the reference is another model than the float one."""
        return self.reference is not self.float_model


@dataclass
class _Output:
    """Everything known about one output of a method."""

    against_reference: Difference
    against_float: Difference
    reference_against_float: Difference
    out_of_tolerance: float = -math.inf


@dataclass
class _Findings:
    broken: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    outputs: list[OutputError] = field(default_factory=list)
    samples: int = 0


def check_runtime(subject: Subject, runtime: StockRuntime) -> RungResult:
    """Run every method on every sample, each on initial state, and compare every output.

    A crash, a wrong shape or dtype, or an error beyond the default for the dtype makes a broken artifact; an error
    beyond the config's own ``atol``, ``rtol`` or ``min_snr_db`` a missed gate.
    """
    findings = _Findings()
    try:
        for method, signature in subject.reference.signatures.items():
            _check_method(subject, runtime, method, signature, findings)
        _check_constants(subject, runtime, findings)
    except ProgramFailureError as error:
        findings.broken.append(f"the runtime failed: {error}")
    problems = (*findings.broken, *findings.missed)
    if problems:
        return RungResult(
            rung="runtime",
            status="failed",
            gate=not findings.broken,
            summary=problems[0],
            problems=problems,
            outputs=tuple(findings.outputs),
        )
    return RungResult(
        rung="runtime", status="passed", summary=_summary(subject, findings), outputs=tuple(findings.outputs)
    )


def _check_method(
    subject: Subject, runtime: StockRuntime, method: str, signature: Signature, findings: _Findings
) -> None:
    outputs: list[_Output] = []
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
            shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs)
            findings.broken.append(f"method {method!r} failed on sample {index} (inputs {shapes}): {error}")
            return
        if len(found) != len(expected):
            findings.broken.append(f"method {method!r} gives {len(found)} outputs, eager PyTorch gives {len(expected)}")
            return
        for position, (value, wanted, plain) in enumerate(zip(found, expected, original, strict=True)):
            if index == 0:
                outputs.append(_new_output(wanted, subject.compute_dtype))
            _add(outputs[position], value, wanted, plain, index, subject.settings)
        findings.samples += 1
    for position, output in enumerate(outputs):
        _judge(subject, method, position, output, findings)


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


def _judge(subject: Subject, method: str, position: int, output: _Output, findings: _Findings) -> None:
    difference = output.against_reference
    snr = difference.snr_db
    float_snr = output.against_float.snr_db if subject.quantized else snr
    label = f"output {position} of {method!r}"
    if difference.problems:
        findings.broken.append(f"{label}: {difference.problems[0]}")
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
            findings.broken.append(
                f"{label} is off by {difference.max_abs_error:.3g}, more than the {difference.allowed:.3g} that "
                f"{difference.dtype} allows by default"
            )
        elif snr < needed:
            findings.broken.append(
                f"{label} has {snr:.1f} dB against the quantized model before lowering, {needed:.1f} dB is the least"
            )
    _judge_gates(subject.settings, label, output, float_snr, findings)


def _judge_gates(settings: Verify, label: str, output: _Output, float_snr: float | None, findings: _Findings) -> None:
    if output.out_of_tolerance > 0:
        findings.missed.append(
            f"{label} exceeds the config's tolerance (atol {settings.atol or 0:g}, rtol {settings.rtol or 0:g}) "
            f"by {output.out_of_tolerance:.3g}"
        )
    if settings.min_snr_db is not None and float_snr is not None and float_snr < settings.min_snr_db:
        findings.missed.append(
            f"{label} has {float_snr:.1f} dB against the float model, min_snr_db is {settings.min_snr_db:g}"
        )


def _check_constants(subject: Subject, runtime: StockRuntime, findings: _Findings) -> None:
    for name, value in subject.project.config.constants.items():
        found = runtime.call(name, (), fresh=True)
        if list(found) != [value]:
            findings.broken.append(f"constant method {name!r} answers {list(found)!r}, not {value!r}")


def _summary(subject: Subject, findings: _Findings) -> str:
    worst = max((output.max_abs_error for output in findings.outputs), default=0.0)
    ratios = [output.snr_db for output in findings.outputs if output.snr_db is not None]
    parts = [f"{findings.samples} samples, max abs error {worst:.2g}"]
    parts.append(f"SNR {min(ratios):.1f} dB" if ratios else "equal")
    if subject.quantized:
        to_float = [output.float_snr_db for output in findings.outputs if output.float_snr_db is not None]
        parts[-1] += f" against the quantized model, {min(to_float):.1f} dB against float" if to_float else ""
    if subject.weak:
        parts.append(f"weak: random inputs for {', '.join(sorted(subject.weak))}")
    return "; ".join(parts)
