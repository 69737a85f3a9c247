"""Check *runtime*: compares the stock ExecuTorch runtime with eager PyTorch on the config's samples.

The check *replay* makes the same comparison with the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from etdev.execution.float_ends import FloatEnds
from etdev.execution.runtimes import Runtime
from etdev.pipeline.results.result import CheckResult, Failure, OutputError
from etdev.pipeline.stages.eager import compute
from etdev.pipeline.stages.inputs import Call, Signature
from etdev.pipeline.stages.quantize.ends import wanted_inputs
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.answers import failed, passed
from etdev.verification.check import Check, Need
from etdev.verification.extremes import EXTREMES, Shapes, check_extremes, shapes_of
from etdev.verification.output_findings import Findings, Problem
from etdev.verification.outputs import Comparison, judge_elements
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
        return compare_with_model(self.name, subject.built, subject.stock_calls)


def compare_with_model(check: str, built: BuiltTarget, runtime: Runtime, note: str = "", **more: Any) -> CheckResult:
    """Run every method on every sample from initial state, then every session, and compare every output.

    If a method writes to state, also call all methods one after another on one state. If the samples lack the smallest
    or largest sizes, also run the methods at these sizes, on random inputs. These random runs do not affect the
    figures, and the config's limits do not apply to them.

    A crash, a wrong shape or dtype, an error above the dtype's default tolerance, or fewer equal elements of integers
    than ``min_agreement`` means a broken file. An error that exceeds only the config's own ``atol``, ``rtol`` or
    ``min_snr_db`` is a missed limit.

    ``note`` is appended to the summary of a passed check, and ``more`` sets other fields of that result.
    """
    runtime = FloatEnds(runtime, built.ends)
    problem = _load(built, runtime, check) or _lacking_end(built)
    if problem is not None:
        hint = f"build it again: `{built.build_command}`"
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
        judge_elements(built, findings)
    except ProgramFailureError as error:
        findings.broken.append(built.broken(f"the {check} failed: {error}"))
    problems, outputs = (*findings.broken, *findings.missed), tuple(findings.outputs)
    warnings = tuple(
        Failure(message=item.text, where=built.project.where(*item.key), hint=item.hint) for item in findings.untried
    )
    if not problems:
        return passed(check, _summary(built, findings) + note, outputs=outputs, warnings=warnings, **more)
    remedy = built.remedy(built.project.where(*problems[0].key), problems[0].hint)
    texts = [problem.text for problem in problems]
    return failed(check, texts, gate=not findings.broken, outputs=outputs, warnings=warnings, **remedy)


def _load(built: BuiltTarget, runtime: Runtime, check: str) -> str | None:
    """Load the file; return the problem, or None if there is none.

    It is a problem if loading fails, or if the file and the config declare different methods.
    """
    described = {name for method, ends in built.ends.items() for end in ends for name in end.constants(method)}
    declared = sorted({*built.reference.signatures, *built.reference.constants, *described})
    try:
        found = sorted(built.load(runtime))
    except ProgramFailureError as error:
        return f"the {check} cannot load the file: {error}"
    if found == declared:
        return None
    return f"the file has the methods {', '.join(found)}, but the config declares {', '.join(declared)}"


def _lacking_end(built: BuiltTarget) -> str | None:
    """Describe the first input or output that is not quantized although the config requires it.

    Return None if there is no such input or output.
    """
    settings = built.project.config.targets[built.target].io
    for method, ends in built.ends.items():
        found = {(end.side, end.position) for end in ends}
        quantized, signature = settings[method].quantized, built.reference.signatures[method]
        wanted: dict[tuple[str, int], str] = {
            ("input", position): f"input {signature.inputs[position].name!r}"
            for position in wanted_inputs(quantized, signature)
        }
        names = {item.name for item in signature.inputs}
        for name in quantized if quantized != "all" else ():
            if name not in names:
                position = int(name.removeprefix("output"))
                wanted["output", position] = f"output {position}"
        for end, name in wanted.items():
            if end not in found:
                return f"{name} of method {method!r} is not quantized, but the config requires it"
    return None


def _check_method(built: BuiltTarget, runtime: Runtime, method: str, signature: Signature, findings: Findings) -> None:
    comparison = Comparison(built, runtime, findings, "on the samples")
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
            hint = f"build it again: `{built.build_command}`"
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
    equal = "floats equal" if any(item.found.differing for item in findings.elements.values()) else "equal"
    parts.append(f"SNR {min(ratios):.1f} dB" if ratios else equal)
    if built.quantized:
        to_float = [output.float_snr_db for output in findings.outputs if output.float_snr_db is not None]
        parts[-1] += f" against the quantized model, {min(to_float):.1f} dB against float" if to_float else ""
    parts.extend(_in_steps(findings.outputs))
    parts.extend(_in_elements(findings))
    if ends and built.quantized:
        parts.append(f"at the {ends} sizes, only shapes and dtypes are compared")
    if findings.row_ended:
        parts.append(findings.row_ended)
    weak = built.weak - findings.in_sessions
    if weak:
        parts.append(f"weak: random inputs for {', '.join(sorted(weak))}")
    return "; ".join(parts)


def _in_steps(outputs: Sequence[OutputError]) -> Iterator[str]:
    """Yield a text about one output: the output with the largest ``steps - allowed_steps``.

    Consider only outputs that kernels compute in fixed point. Without such outputs, yield nothing.
    """
    found = [item for item in outputs if item.steps is not None and item.allowed_steps is not None]
    if found:
        worst = max(found, key=lambda item: (item.steps or 0) - (item.allowed_steps or 0))
        yield (
            f"output {worst.output} differs from the quantized model by at most {_count(worst.steps or 0, 'step')} of "
            f"{worst.step:.3g} ({worst.allowed_steps} allowed, because kernels scale in fixed point)"
        )


def _in_elements(findings: Findings) -> Iterator[str]:
    """Yield a text about each output whose elements are counted, if some differ from the reference."""
    for (method, position), compared in findings.elements.items():
        found = compared.found
        if found.differing:
            yield f"output {position} of {method!r}: {found} ({found.share} agree)"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
