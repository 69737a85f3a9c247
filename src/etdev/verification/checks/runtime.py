"""Check *runtime*: compares the stock ExecuTorch runtime with eager PyTorch on the config's samples.

The check *replay* makes the same comparison with the interpreter.
"""

from __future__ import annotations

from typing import Any

from etdev.execution.runtimes import Runtime
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.eager import compute
from etdev.pipeline.stages.inputs import Call, Signature
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.answers import failed, passed
from etdev.verification.check import Check, Need
from etdev.verification.extremes import EXTREMES, Shapes, check_extremes, shapes_of
from etdev.verification.output_findings import Findings, Problem
from etdev.verification.outputs import Comparison
from etdev.verification.sessions import check_calls_in_a_row, check_sessions
from etdev.verification.subject import BuiltTarget, Subject


class RuntimeCheck(Check):
    """Does the stock runtime compute the same as eager PyTorch, on the config's samples and sessions?"""

    name = "runtime"
    needs = (Need.CONFIG, Need.PROGRAM)

    def applies(self, subject: Subject) -> str | None:
        return subject.stock_obstacle

    def run(self, subject: Subject) -> CheckResult:
        """Run the program in the stock runtime, and compare every output with that of eager PyTorch."""
        return compare_with_model(self.name, subject.built, subject.stock)


def compare_with_model(check: str, built: BuiltTarget, runtime: Runtime, note: str = "", **more: Any) -> CheckResult:
    """Run every method on every sample from initial state, then every session, and compare every output.

    If a method writes to state, all methods are also called one after another on one state.

    A crash, a wrong shape or dtype, or an error above the dtype's default tolerance means that the file is broken. An
    error beyond the config's own ``atol``, ``rtol`` or ``min_snr_db`` means a missed gate. If the samples do not
    include the ends of a dynamic range, the methods also run at these sizes, on random inputs. The figures and the
    config's limits ignore those runs.

    If the check passes, ``note`` is appended to the summary, and ``more`` are other fields of the result.
    """
    problem = _load(built, runtime, check)
    if problem is not None:
        hint = f"build it again: `etdev build {built.target}`"
        return failed(check, (problem,), **built.remedy(built.place(), hint))
    findings = Findings()
    try:
        for method, signature in built.reference.signatures.items():
            _check_method(built, runtime, method, signature, findings)
        _check_constants(built, runtime, findings)
        if not findings.broken:
            check_sessions(built, runtime, findings)
        if not findings.broken and findings.stateful:
            check_calls_in_a_row(built, runtime, findings)
    except ProgramFailureError as error:
        findings.broken.append(built.broken(f"the {check} failed: {error}"))
    problems, outputs = (*findings.broken, *findings.missed), tuple(findings.outputs)
    if not problems:
        return passed(check, _summary(built, findings) + note, outputs=outputs, **more)
    remedy = built.remedy(built.project.where(*problems[0].key), problems[0].hint)
    texts = [problem.text for problem in problems]
    return failed(check, texts, gate=not findings.broken, outputs=outputs, **remedy)


def _load(built: BuiltTarget, runtime: Runtime, check: str) -> str | None:
    """Load the file; return the problem if loading fails or the config has other methods, else None."""
    declared = sorted({*built.reference.signatures, *built.reference.constants})
    try:
        found = sorted(built.load(runtime))
    except ProgramFailureError as error:
        return f"the {check} cannot load the file: {error}"
    if found == declared:
        return None
    return f"the file has the methods {', '.join(found)}, but the config declares {', '.join(declared)}"


def _check_method(built: BuiltTarget, runtime: Runtime, method: str, signature: Signature, findings: Findings) -> None:
    comparison = Comparison(built, runtime, findings)
    seen: set[Shapes] = set()
    for index, inputs in enumerate(built.samples(method)):
        if index == built.effort.samples:
            findings.cut = True
            break
        written: set[str] = set()
        expected = compute(built.project, built.user, built.reference, method, inputs, written=written)
        if written:
            findings.stateful.add(method)
        original = (
            compute(built.project, built.user, built.float_model, method, inputs) if built.quantized else expected
        )
        if not comparison.call(Call(method, inputs), expected, original, f"sample {index}", fresh=True):
            return
        seen.add(shapes_of(inputs))
        findings.samples += 1
    comparison.judge()
    if built.effort.extremes:
        check_extremes(built, runtime, method, signature, seen, findings)


def _check_constants(built: BuiltTarget, runtime: Runtime, findings: Findings) -> None:
    for name, value in built.reference.constants.items():
        found = list(runtime.call(name, (), fresh=True))
        expected = list(value) if isinstance(value, tuple) else [value]
        if found != expected:
            text = f"constant method {name!r} returns {found!r} instead of {expected!r}"
            hint = f"build it again: `etdev build {built.target}`"
            findings.broken.append(Problem(text, ("constants", name), hint))


def _summary(built: BuiltTarget, findings: Findings) -> str:
    worst = max((output.max_abs_error for output in findings.outputs), default=0.0)
    ratios = [output.snr_db for output in findings.outputs if output.snr_db is not None]
    ran = _count(findings.samples, "sample")
    ends = " and ".join(name for name in EXTREMES if name in findings.extremes)
    if ends:
        ran += f" and the {ends} sizes"
    if findings.sessions:
        calls = _count(findings.session_calls, "call")
        together = f"with a total of {calls}" if findings.sessions > 1 else f"of {calls}"
        ran += f" and {_count(findings.sessions, 'session')} {together}"
    if findings.cut:
        ran = f"the first {ran}"
    if findings.in_a_row:
        ran += f", then {_count(findings.in_a_row, 'call')} in a row"
    parts = [f"{ran}, max abs error {worst:.2g}"]
    parts.append(f"SNR {min(ratios):.1f} dB" if ratios else "equal")
    if built.quantized:
        to_float = [output.float_snr_db for output in findings.outputs if output.float_snr_db is not None]
        parts[-1] += f" against the quantized model, {min(to_float):.1f} dB against float" if to_float else ""
    if ends and built.quantized:
        parts.append(f"at the {ends} sizes, only shapes and dtypes are compared")
    if findings.untried:
        parts.append(f"sizes not tried: {', '.join(findings.untried)}")
    if findings.row_ended:
        parts.append(findings.row_ended)
    weak = built.weak - findings.in_sessions
    if weak:
        parts.append(f"weak: random inputs for {', '.join(sorted(weak))}")
    return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
