"""Check *tosa*: runs the TOSA graphs of Ethos-U delegates, and compares them with the quantized model.

The program runs in the interpreter, which computes the ops of each delegate with PyTorch's kernels. So each delegate
gets the same inputs as in the quantized model. The TOSA reference model then runs the delegate's graph on these inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from etdev import tosa_tools
from etdev.backends.ethos_u import DELEGATE_ID, vela
from etdev.backends.ethos_u.options import EthosUOptions
from etdev.errors import EtdevError, MissingRequirementError
from etdev.execution.float_ends import quantized_inputs
from etdev.execution.runtimes import open_replay
from etdev.pipeline.project.backend_options import backend_options
from etdev.pipeline.results.reasons import NO_ETHOS_U
from etdev.pipeline.results.result import CheckResult
from etdev.program import Blob, Program, parse
from etdev.program.model import BackendDelegate
from etdev.program.sidecar.records import DelegateRecord
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.check import Check, Need
from etdev.verification.subject import BuiltTarget, Subject
from etdev.verification.tosa.calls import Call, ModelFailureError, recording_executor, run_model
from etdev.verification.tosa.own_ops import digest_of
from etdev.verification.tosa.rounding import compare_calls, roundings

_SAMPLES = 8
"""Maximum number of samples for each method; the reference model is slow."""
_HINT = "leave the op at fault to another partitioner"
_AGAIN = "build the target again, because the file and the graph are not of one build"


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
            digests = {call.digest for call in calls}
            counts = {digest: roundings(parse(Blob(built.records[digest].reference))) for digest in digests}
            problems, worst = compare_calls(calls, run_model(calls, built.records), counts)
            compiled = _compiled_again(built, program)
        except MissingRequirementError as error:
            return not_run(self.name, error.message, hint=error.hint)
        except (ModelFailureError, ProgramFailureError) as error:
            return failed(self.name, (str(error),), where=built.place("partitioners"), hint=_HINT)
        other = compiled if isinstance(compiled, list) else []
        if problems or other:
            hint = _AGAIN if other else _HINT
            return failed(self.name, [*problems, *other], **built.remedy(built.place("partitioners"), hint))
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
            for index, sample in enumerate(islice(built.samples(method), _SAMPLES)):
                before = len(calls)
                replay.call(method, quantized_inputs(built.ends, method, sample), fresh=True)
                calls[before:] = [replace(call, at=f"sample {index} of {method!r}") for call in calls[before:]]
                samples += 1
    return calls, samples


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
