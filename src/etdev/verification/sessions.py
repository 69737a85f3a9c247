"""Sessions: calls of several methods in order on one state, compared with the same calls in eager PyTorch.

The config may define sessions. In addition, all methods of a program with state are called several times in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

from etdev.errors import VerifyError
from etdev.execution.runtimes import Runtime
from etdev.pipeline.project import says_share_state
from etdev.pipeline.stages.eager import Session
from etdev.pipeline.stages.inputs import Call, read_sessions
from etdev.verification.output_findings import Findings
from etdev.verification.outputs import Comparison
from etdev.verification.subject import BuiltTarget

_ROUNDS = 3
"""Number of calls of each method, one after another on one state."""


def check_sessions(built: BuiltTarget, runtime: Runtime, findings: Findings) -> None:
    """Run each session of the config from initial state, and compare the outputs of every call.

    If methods share state, run the sessions with one memory for all methods. Otherwise, run the sessions with separate
    memory for each method. Then, if there are several methods, repeat the sessions with one memory, because some
    loaders use one memory for all methods.
    """
    if built.settings.sessions is None:
        return
    if built.project.config.model.share_state:
        _run_all(built, runtime, findings, shared=True, note="")
        return
    _run_all(built, runtime, findings, shared=False, note="")
    if len(built.reference.signatures) > 1 and not findings.broken:
        _run_all(built, runtime, findings.separate(), shared=True, note=" with all methods in one memory")


def check_calls_in_a_row(built: BuiltTarget, runtime: Runtime, findings: Findings) -> None:
    """Call all methods in turn, three times each, from initial state, and compare every output.

    The inputs are the first samples. Every second round runs in reverse order, so that the first and the last method
    also run twice in succession. The config's limits do not apply, because the user did not choose this order of calls.
    The calls end early if eager PyTorch fails. The calls use separate or shared memory under the same rules as
    :func:`check_sessions`.
    """
    calls = _calls_in_a_row(built)
    shared = built.project.config.model.share_state
    findings.in_a_row = _run_row(built, runtime, calls, findings, shared=shared, note="")
    if not shared and len(built.reference.signatures) > 1 and not findings.broken:
        _run_row(built, runtime, calls, findings, shared=True, note=" with all methods in one memory")


def _calls_in_a_row(built: BuiltTarget) -> list[Call]:
    first = {name: list(islice(built.samples(name), _ROUNDS)) for name in built.reference.signatures}
    inputs = {name: list(islice(cycle(samples), _ROUNDS)) for name, samples in first.items()}
    methods = list(built.reference.signatures)
    return [
        Call(method, inputs[method][number])
        for number in range(_ROUNDS)
        for method in (reversed(methods) if number % 2 else methods)
    ]


def _run_row(
    built: BuiltTarget, runtime: Runtime, calls: Sequence[Call], findings: Findings, *, shared: bool, note: str
) -> int:
    """Make the calls, and compare their outputs. Return the number of calls whose outputs were compared."""
    built.load(runtime, shared=shared)
    judged = replace(built, effort=replace(built.effort, limits=False))
    comparison = Comparison(judged, runtime, findings.separate(), f"in calls in a row{note}")
    reference = Session(built.project, built.user, built.reference)
    original = Session(built.project, built.user, built.float_model)
    made = 0
    for index, call in enumerate(calls):
        at, where = f"call {index} in a row", built.project.where("methods", call.method)
        try:
            expected = reference.compute(call, at, where)
            plain = original.compute(call, at, where) if built.quantized else expected
        except VerifyError as error:
            findings.row_ended = (
                f"call {index} in a row, of {call.method!r}, fails in eager PyTorch too: "
                + type(error.__cause__).__name__
            )
            break
        if not comparison.call(call, expected, plain, at + note, fresh=index == 0):
            return made
        made += 1
    comparison.judge()
    return made


def _run_all(built: BuiltTarget, runtime: Runtime, findings: Findings, *, shared: bool, note: str) -> None:
    project, key, entry = built.project, ("targets", built.target, "verify", "sessions"), built.settings.sessions
    assert entry is not None
    where = project.where(*key)
    function = built.user.get(entry, project.base(*key), where)
    built.load(runtime, shared=shared)
    comparison = Comparison(built, runtime, findings, f"in the sessions{note}")
    room = built.effort.session_calls
    sessions = read_sessions(built.user, function, entry, built.reference.signatures, where)
    for number, every in enumerate(sessions):
        calls = every if room is None else every[: room - findings.session_calls]
        findings.cut |= len(calls) < len(every)
        if not calls:
            break
        _refuse_split_state(built, calls, number, where)
        if not _run(built, comparison, calls, number, where, note):
            break
        findings.sessions += 1
        findings.session_calls += len(calls)
        findings.in_sessions.update(call.method for call in calls)
    comparison.judge()


def _refuse_split_state(built: BuiltTarget, calls: Sequence[Call], number: int, where: str) -> None:
    """Raise :class:`~etdev.errors.VerifyError` if methods of a session write separate copies of the same state.

    A comparison cannot find this fault, because the eager model has the same copies. Methods that only read the state
    are not found. If the config sets ``model.share_state``, raise no error.
    """
    if says_share_state(built.project):
        return
    called = dict.fromkeys(call.method for call in calls)
    owners: dict[str, list[str]] = {}
    for method in called:
        for state in built.notes[method].state if method in built.notes else ():
            owners.setdefault(state.name, []).append(method)
    split = {name: methods for name, methods in owners.items() if len(methods) > 1}
    if split:
        name, methods = next(iter(split.items()))
        more = f" and {len(split) - 1} more" if len(split) > 1 else ""
        raise VerifyError(
            f"session {number} calls {' and '.join(methods)}, which each have their own copy of {name}{more}: a method "
            "does not see what the others write",
            where=where,
            hint="set `model.share_state`: true shares the state, false keeps the copies",
        )


def _run(
    built: BuiltTarget, comparison: Comparison, calls: tuple[Call, ...], number: int, where: str, note: str
) -> bool:
    """Run one session; return True if all calls returned outputs.

    The session ends at the first call that fails, because the outputs of later calls would not be comparable.
    """
    reference = Session(built.project, built.user, built.reference)
    original = Session(built.project, built.user, built.float_model)
    for index, call in enumerate(calls):
        at = f"session {number}, call {index}"
        expected = reference.compute(call, at, where)
        plain = original.compute(call, at, where) if built.quantized else expected
        if not comparison.call(call, expected, plain, at + note, fresh=index == 0):
            return False
    return True
