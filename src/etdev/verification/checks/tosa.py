"""Check *tosa*: runs the TOSA graphs of Ethos-U delegates, and compares them with the quantized model.

The program runs in the interpreter, which computes the ops of each delegate with PyTorch's kernels. So each delegate
gets the same inputs as in the quantized model. The TOSA reference model then runs the delegate's graph on these inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from etdev import tosa_tools
from etdev.backends.ethos_u import DELEGATE_ID, vela
from etdev.backends.ethos_u.options import EthosUOptions
from etdev.errors import EtdevError, MissingRequirementError
from etdev.execution.float_ends import quantized_inputs
from etdev.execution.runtimes import open_replay
from etdev.pipeline.project.backend_options import backend_options
from etdev.pipeline.results.result import NO_ETHOS_U, CheckResult
from etdev.program import Program
from etdev.program.model import BackendDelegate
from etdev.program.sidecar.records import DelegateRecord
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.check import Check, Need
from etdev.verification.subject import BuiltTarget, Subject
from etdev.verification.tosa.calls import Call, ModelFailureError, recording_executor, run_model
from etdev.verification.tosa.own_ops import digest_of

if TYPE_CHECKING:
    import numpy as np

_SAMPLES = 8
"""Maximum number of samples for each method; the reference model is slow."""
_STEPPED = ("int8", "int16")
"""Dtypes of quantized values, which may differ by one step. Values of other dtypes must be equal."""
_HINT = "build the target again; if the check fails again, leave the op at fault to another partitioner"


class TosaCheck(Check):
    """Do the TOSA graphs from which Vela made the delegates compute the same as the quantized model?"""

    name = "tosa"
    needs = (Need.CONFIG, Need.PROGRAM, Need.SOUND, Need.TORCH)

    def applies(self, subject: Subject) -> str | None:
        """Return the reason not to run if the program has no Ethos-U delegate; otherwise None."""
        return None if any(_delegates(subject.program)) else NO_ETHOS_U

    def run(self, subject: Subject) -> CheckResult:
        """Run the graph of each delegate on the inputs that the delegate gets for some samples."""
        built, program = subject.built, subject.program
        reason = _obstacle(program, built.records)
        if reason is not None:
            return not_run(self.name, reason)
        lacking = tosa_tools.problem()
        if lacking is not None:
            return not_run(self.name, lacking, hint=tosa_tools.remedy())
        try:
            calls, samples = _recorded(subject)
            problems, worst = _compared(calls, run_model(calls, built.records))
            compiled = _compiled_again(built, program)
        except MissingRequirementError as error:
            return not_run(self.name, error.message, hint=error.hint)
        except (ModelFailureError, ProgramFailureError) as error:
            return failed(self.name, (str(error),), where=built.place("partitioners"), hint=_HINT)
        problems += compiled if isinstance(compiled, list) else []
        if problems:
            return failed(self.name, problems, **built.remedy(built.place("partitioners"), _HINT))
        return passed(self.name, _summary(built, calls, samples, worst, compiled))


def _delegates(program: Program) -> Iterator[tuple[str, int, BackendDelegate]]:
    """Yield each Ethos-U delegate as ``(method, index of the delegate in the method, delegate)``."""
    for plan in program.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            if delegate.id == DELEGATE_ID:
                yield plan.name, index, delegate


def _obstacle(program: Program, records: Mapping[str, DelegateRecord]) -> str | None:
    for method, index, delegate in _delegates(program):
        record, name = records.get(digest_of(program.delegate_data(delegate))), f"delegate {index} of {method!r}"
        if record is None:
            return f"the TOSA graph of {name} is unknown: the object program of this file is not in the output folder"
        if not record.reference:
            return f"{name} contains an op without an out variant, so the interpreter cannot compute the delegate"
    return None


def _recorded(subject: Subject) -> tuple[list[Call], int]:
    """Run the program on some samples; return all calls of Ethos-U delegates, and the number of samples."""
    calls: list[Call] = []
    built, samples = subject.built, 0
    own = {DELEGATE_ID: recording_executor(built.records, calls.append)}
    with open_replay(subject.device_map, built.inplace, others=own) as replay:
        replay.load(subject.program)
        for method in built.reference.signatures:
            for sample in islice(built.samples(method), _SAMPLES):
                replay.call(method, quantized_inputs(built.ends, method, sample), fresh=True)
                samples += 1
    return calls, samples


def _compared(
    calls: Sequence[Call], answers: Sequence[tuple[np.ndarray[Any, Any], ...] | str]
) -> tuple[list[str], int]:
    """Return the problems, at most one for each delegate, and the largest difference in quantization steps."""
    problems: dict[str, str] = {}
    worst = 0
    for call, answer in zip(calls, answers, strict=True):
        name = f"the TOSA graph of delegate {call.digest[:12]}…"
        if isinstance(answer, str):
            problems.setdefault(call.digest, f"the TOSA reference model refuses {name}: {answer}")
            continue
        if len(answer) != len(call.expected):
            text = f"{name} has {len(answer)} outputs, but the delegate has {len(call.expected)}"
            problems.setdefault(call.digest, text)
        for index, (found, expected) in enumerate(zip(answer, call.expected, strict=False)):
            steps = _steps(found, expected)
            if isinstance(steps, str) or steps > (1 if str(expected.dtype) in _STEPPED else 0):
                text = steps if isinstance(steps, str) else f"differs by {steps:,} steps from the quantized model"
                problems.setdefault(call.digest, f"output {index} of {name} {text}")
            else:
                worst = max(worst, steps)
    return list(problems.values()), worst


def _steps(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> int | str:
    """Return the largest difference between two arrays of integers.

    If the dtypes or shapes differ, return a description of them instead.
    """
    import numpy as np

    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"is {found.dtype} {list(found.shape)} instead of {expected.dtype} {list(expected.shape)}"
    if not found.size:
        return 0
    return int(np.abs(found.astype(np.int64) - expected.astype(np.int64)).max())


def _compiled_again(built: BuiltTarget, program: Program) -> list[str] | str:
    """Compile each graph again with Vela, and return a text for each delegate whose blob differs.

    If Vela is not installed, return a note instead.
    """
    if vela.version() is None:
        return f"the package {vela.DISTRIBUTION!r} is not installed, so the graphs were not compiled again"
    from etdev.backends.ethos_u.compiling import compile_again

    problems = []
    options = list(_options(built))
    for method, index, delegate in _delegates(program):
        blob = program.delegate_data(delegate)
        flags = next(spec.value for spec in delegate.compile_specs if spec.key == "compile_flags")
        try:
            again = compile_again(built.records[digest_of(blob)].graph, bytes(flags).decode(), options)
        except EtdevError as error:
            problems.append(f"delegate {index} of {method!r}: {error.message}")
            continue
        if again != bytes(blob):
            text = "Vela compiles the TOSA graph to other bytes than those in the file"
            problems.append(f"delegate {index} of {method!r}: {text}")
    return problems


def _options(built: BuiltTarget) -> Iterator[EthosUOptions]:
    for index in range(len(built.project.config.targets[built.target].partitioners)):
        options = backend_options(built.project, built.target, index)
        if isinstance(options, EthosUOptions):
            yield options


def _summary(built: BuiltTarget, calls: Sequence[Call], samples: int, worst: int, compiled: Sequence[str] | str) -> str:
    count = Counter(call.digest for call in calls)
    graphs = f"{len(count)} TOSA graph{'s' * (len(count) != 1)}"
    parts = [
        f"{graphs} on {samples} sample{'s' * (samples != 1)}, at most {worst} LSB from the quantized model",
        compiled if isinstance(compiled, str) else "Vela compiles the graphs to the bytes in the file",
        "Vela's command stream itself was not executed",
    ]
    if built.weak:
        parts.append("weak: random inputs")
    return "; ".join(parts)
