"""Hints on programs that fail when they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.execution.run import CallSpec, program_failed
from etdev.program import model as m
from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError

KERNEL = (
    "method->execute() failed [[method.cpp:1483] KernelCall failed at instruction 0:0 in operator aten::embedding.out]"
)
DELEGATE = "method->execute() failed [[method.cpp:1504] CALL_DELEGATE execute failed at instruction 1]"


SHAPES = "method->execute() failed [[XNNExecutor.cpp:169] Internal Error: Propagating input shapes failed with code: 3]"
CRASH = "the runtime's process ended with signal SIGSEGV"
VALUES = "check the values of the inputs"
FILE = "pass that file: `--data FILE.ptd`"


@pytest.mark.parametrize(
    ("failure", "data", "hints"),
    [
        (ProgramFailureError(KERNEL), (), ("check the values and sizes of the inputs",)),
        (ProgramFailureError(DELEGATE), (), (FILE,)),
        (ProgramFailureError(SHAPES), (), ("check the sizes of the inputs",)),
        (ProgramFailureError(DELEGATE), (Path("weights.ptd"),), ()),
        (RuntimeCrashError(CRASH), (), (VALUES, FILE)),
        (RuntimeCrashError(CRASH), (Path("weights.ptd"),), (VALUES,)),
    ],
)
def test_the_hint_fits_the_failure(
    failure: ProgramFailureError, data: tuple[Path, ...], hints: tuple[str, ...]
) -> None:
    """A crash had only the hint on a file, although a kernel had read outside of its table."""
    place = m.BackendDelegateDataReference(m.DataLocation.SEGMENT, 0)
    plan = m.ExecutionPlan("forward", (), (), (), (), (), (m.BackendDelegate("Own", place),), (0,))
    error = program_failed(failure, Path("a.pte"), plan, CallSpec(data=data))

    assert str(failure) in error.message
    assert len((error.hint or "").split("; ")) == max(len(hints), 1)
    assert all(hint in (error.hint or "") for hint in hints)
    assert hints or error.hint is None
