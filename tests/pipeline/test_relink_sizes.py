"""``etdev.relink`` makes no file larger for nothing, and reports copies of that file alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import etdev
from etdev.program import model as m
from etdev.program import read, write
from support.files import branches
from support.on_devices import two_devices


def test_copies_between_devices_are_not_reported_as_removed(tmp_path: Path) -> None:
    write(two_devices(), tmp_path / "a.pte")
    result = etdev.relink(tmp_path / "a.pte", tmp_path / "b.pte")

    (method,) = result.methods
    assert (method.copies, method.copy_decisions) == ((), ())
    assert [(item.instruction, item.operator) for item in method.inplace_decisions] == [(3, "aten::sin.out")]


@pytest.mark.parametrize("rounds", [1, 2])
def test_each_tensor_on_the_host_is_one_value(rounds: int, tmp_path: Path) -> None:
    """What a copy from a device writes is what is read: no second value has the same place and sizes."""
    write(two_devices(), tmp_path / "a.pte")
    for _ in range(rounds):
        etdev.relink(tmp_path / "a.pte", tmp_path / "b.pte")
        (tmp_path / "b.pte").replace(tmp_path / "a.pte")

    (plan,) = read(tmp_path / "a.pte").execution_plan
    assert len(plan.values) == len(two_devices().execution_plan[0].values)
    written = {call.args[-1] for call in plan.chains[0].instructions if isinstance(call, m.KernelCall | m.DelegateCall)}
    assert written | {*plan.inputs} == set(range(len(plan.values)))
    assert {*plan.outputs} <= written


def test_a_plan_that_saves_nothing_is_not_taken_in_a_larger_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a.pte", tmp_path / "b.pte"
    write(branches(), first)
    result = etdev.relink(first, second)

    assert result.methods[0].kept == "a new plan would save nothing, and the file would be 8 bytes larger"
    assert second.read_bytes() == first.read_bytes()
