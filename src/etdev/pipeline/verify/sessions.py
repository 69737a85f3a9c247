"""Sessions: calls of several methods in order on one state, in the runtime and in eager PyTorch."""

from __future__ import annotations

from etdev.pipeline.inputs import Call, read_sessions
from etdev.pipeline.verify.outputs import Comparison
from etdev.pipeline.verify.reference import Session
from etdev.pipeline.verify.subject import Findings, Runtime, Subject


def check_sessions(subject: Subject, runtime: Runtime, findings: Findings) -> None:
    """Run each session on fresh state, and compare the outputs of every call.

    Some loaders give all methods of a program the same memory, some give each its own. State that methods share needs
    the first kind. State of their own has to be right under both, and is tried under both if there are several methods.
    """
    if subject.settings.sessions is None:
        return
    if subject.project.config.model.share_state:
        _run_all(subject, runtime, findings, shared=True, note="")
        return
    _run_all(subject, runtime, findings, shared=False, note="")
    if len(subject.reference.signatures) > 1 and not findings.broken:
        _run_all(
            subject, runtime, Findings(broken=findings.broken), shared=True, note=" with all methods in one memory"
        )


def _run_all(subject: Subject, runtime: Runtime, findings: Findings, *, shared: bool, note: str) -> None:
    project, key, entry = subject.project, ("targets", subject.target, "verify", "sessions"), subject.settings.sessions
    assert entry is not None
    where = project.where(*key)
    function = subject.user.get(entry, project.base(*key), where)
    subject.load(runtime, shared=shared)
    comparison = Comparison(subject, runtime, findings)
    room = subject.effort.session_calls
    sessions = read_sessions(subject.user, function, entry, subject.reference.signatures, where)
    for number, every in enumerate(sessions):
        calls = every if room is None else every[: room - findings.session_calls]
        findings.cut |= len(calls) < len(every)
        if not calls:
            break
        if not _run(subject, comparison, calls, number, where, note):
            break
        findings.sessions += 1
        findings.session_calls += len(calls)
        findings.in_sessions.update(call.method for call in calls)
    comparison.judge()


def _run(subject: Subject, comparison: Comparison, calls: tuple[Call, ...], number: int, where: str, note: str) -> bool:
    """Whether every call of a session gave outputs to compare; what one gives after a failure would mean nothing."""
    reference = Session(subject.project, subject.user, subject.reference)
    original = Session(subject.project, subject.user, subject.float_model)
    for index, call in enumerate(calls):
        at = f"session {number}, call {index}"
        expected = reference.compute(call, at, where)
        plain = original.compute(call, at, where) if subject.quantized else expected
        if not comparison.call(call, expected, plain, at + note, fresh=index == 0):
            return False
    return True
