"""Check *runtime*: compare the stock ExecuTorch runtime with eager PyTorch, on the config's samples.

The check *replay* makes the same comparison with the interpreter.
"""

from __future__ import annotations

from etdev.config.models import CheckName
from etdev.execution.runtimes import Runtime
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.eager import compute
from etdev.pipeline.stages.inputs import Call, Signature
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.extremes import EXTREMES, Shapes, check_extremes, shapes_of
from etdev.verification.outputs import Comparison
from etdev.verification.sessions import check_calls_in_a_row, check_sessions
from etdev.verification.subject import Findings, Problem, Subject


def check_runtime(subject: Subject, runtime: Runtime, *, check: CheckName = "runtime") -> CheckResult:
    """Run every method on every sample from initial state, then every session, and compare every output.

    If a method writes to state, all methods are also called in a row on one state.

    A crash, a wrong shape or dtype, or an error beyond the dtype's default means a broken artifact. An error beyond the
    config's own ``atol``, ``rtol`` or ``min_snr_db`` means a missed gate. If the samples leave out the ends of a
    dynamic range, those run on random inputs. They count for no figure and no limit of the config.
    """
    findings = Findings()
    try:
        for method, signature in subject.reference.signatures.items():
            _check_method(subject, runtime, method, signature, findings)
        _check_constants(subject, runtime, findings)
        if not findings.broken:
            check_sessions(subject, runtime, findings)
        if not findings.broken and findings.stateful:
            check_calls_in_a_row(subject, runtime, findings)
    except ProgramFailureError as error:
        findings.broken.append(subject.broken(f"the {check} failed: {error}"))
    problems = (*findings.broken, *findings.missed)
    if problems:
        return CheckResult(
            name=check,
            status="failed",
            gate=not findings.broken,
            summary=problems[0].text,
            problems=tuple(problem.text for problem in problems),
            where=subject.project.where(*problems[0].key),
            hint=problems[0].hint,
            outputs=tuple(findings.outputs),
        )
    return CheckResult(
        name=check, status="passed", summary=_summary(subject, findings), outputs=tuple(findings.outputs)
    )


def _check_method(subject: Subject, runtime: Runtime, method: str, signature: Signature, findings: Findings) -> None:
    comparison = Comparison(subject, runtime, findings)
    seen: set[Shapes] = set()
    for index, inputs in enumerate(subject.samples[method]):
        if index == subject.effort.samples:
            findings.cut = True
            break
        written: set[str] = set()
        expected = compute(subject.project, subject.user, subject.reference, method, inputs, written=written)
        if written:
            findings.stateful.add(method)
        original = (
            compute(subject.project, subject.user, subject.float_model, method, inputs)
            if subject.quantized
            else expected
        )
        if not comparison.call(Call(method, inputs), expected, original, f"sample {index}", fresh=True):
            return
        seen.add(shapes_of(inputs))
        findings.samples += 1
    comparison.judge()
    if subject.effort.extremes:
        check_extremes(subject, runtime, method, signature, seen, findings)


def _check_constants(subject: Subject, runtime: Runtime, findings: Findings) -> None:
    for name, value in subject.reference.constants.items():
        found = list(runtime.call(name, (), fresh=True))
        expected = list(value) if isinstance(value, tuple) else [value]
        if found != expected:
            text = f"constant method {name!r} answers {found!r}, not {expected!r}"
            hint = f"build it again: `etdev build {subject.target}`"
            findings.broken.append(Problem(text, ("constants", name), hint))


def _summary(subject: Subject, findings: Findings) -> str:
    worst = max((output.max_abs_error for output in findings.outputs), default=0.0)
    ratios = [output.snr_db for output in findings.outputs if output.snr_db is not None]
    ran = _count(findings.samples, "sample")
    ends = " and ".join(name for name in EXTREMES if name in findings.extremes)
    if ends:
        ran += f" and the {ends} sizes"
    if findings.sessions:
        calls = _count(findings.session_calls, "call")
        together = f"with {calls} in all" if findings.sessions > 1 else f"of {calls}"
        ran += f" and {_count(findings.sessions, 'session')} {together}"
    if findings.cut:
        ran = f"the first {ran}"
    if findings.in_a_row:
        ran += f", then {_count(findings.in_a_row, 'call')} in a row"
    parts = [f"{ran}, max abs error {worst:.2g}"]
    parts.append(f"SNR {min(ratios):.1f} dB" if ratios else "equal")
    if subject.quantized:
        to_float = [output.float_snr_db for output in findings.outputs if output.float_snr_db is not None]
        parts[-1] += f" against the quantized model, {min(to_float):.1f} dB against float" if to_float else ""
    if ends and subject.quantized:
        parts.append(f"at the {ends} sizes only shapes and dtypes are compared")
    if findings.untried:
        parts.append(f"sizes not tried: {', '.join(findings.untried)}")
    if findings.row_ended:
        parts.append(findings.row_ended)
    weak = subject.weak - findings.in_sessions
    if weak:
        parts.append(f"weak: random inputs for {', '.join(sorted(weak))}")
    return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
