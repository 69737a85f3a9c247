"""Hints on programs that fail when they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.execution.run import CallSpec, program_failed
from etdev.program import model as m
from etdev.runtime.stock import ProgramFailureError

KERNEL = (
    "method->execute() failed [[method.cpp:1483] KernelCall failed at instruction 0:0 in operator aten::embedding.out]"
)
DELEGATE = "method->execute() failed [[method.cpp:1504] CALL_DELEGATE execute failed at instruction 1]"


@pytest.mark.parametrize(
    ("message", "data", "hint"),
    [
        (KERNEL, (), "check the values and sizes of the inputs"),
        (DELEGATE, (), "pass that file: `--data FILE.ptd`"),
        (DELEGATE, (Path("weights.ptd"),), None),
    ],
)
def test_the_hint_fits_the_failure(message: str, data: tuple[Path, ...], hint: str | None) -> None:
    place = m.BackendDelegateDataReference(m.DataLocation.SEGMENT, 0)
    plan = m.ExecutionPlan("forward", (), (), (), (), (), (m.BackendDelegate("Own", place),), (0,))
    error = program_failed(ProgramFailureError(message), Path("a.pte"), plan, CallSpec(data=data))

    assert message in error.message
    assert hint in (error.hint or "") if hint else error.hint is None
