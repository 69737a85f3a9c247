"""Bytes that a call copies between the host and devices: the worst case over its paths (B8)."""

from __future__ import annotations

import pytest

from etdev.inspection.transfers import transfers_per_call
from etdev.program import model as m
from etdev.program.info import Transfers
from program.hand import tensor
from support.files import SIN, chain, method
from support.on_devices import D2H, H2D, on, two_devices_plan

THERE, BACK, MUCH_BACK = m.KernelCall(0, (0, 1, 1)), m.KernelCall(1, (1, 2, 2)), m.KernelCall(1, (4, 5, 5))
"""16 bytes to the device; 16 back; 64 back."""
FLAG = 3


def jump(to: int) -> m.JumpFalseCall:
    return m.JumpFalseCall(FLAG, to)


def always(to: int) -> m.JumpFalseCall:
    return m.JumpFalseCall(6, to)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([], Transfers(0, 0), id="nothing"),
        pytest.param([THERE, BACK, THERE], Transfers(32, 16), id="in a row"),
        pytest.param([jump(3), THERE, always(4), MUCH_BACK, BACK], Transfers(0, 80), id="the path that copies most"),
        pytest.param([jump(2), THERE, BACK], Transfers(16, 16), id="a branch without another side"),
        pytest.param([always(2), THERE, BACK], Transfers(0, 16), id="what no path reaches"),
        pytest.param([THERE, BACK, jump(1), MUCH_BACK], Transfers(16, 80, loops=True), id="a loop counts once"),
        pytest.param([THERE, jump(3), jump(1), BACK], Transfers(16, 16), id="a loop that copies nothing"),
        pytest.param([jump(3), THERE, always(0), BACK], Transfers(16, 16, loops=True), id="a loop that asks first"),
        pytest.param([BACK, jump(0)], Transfers(0, 16, loops=True), id="a loop of one block"),
    ],
)
def test_copies(calls: list[m.Instruction], expected: Transfers) -> None:
    values = [tensor(4), on("cuda:0", 4), tensor(4), m.Bool(True), on("cuda:0", 16), tensor(16), m.Bool(False)]
    plan = method(values, calls, inputs=(0, 3), outputs=(2,), operators=(H2D, D2H, SIN))

    assert transfers_per_call(plan) == expected


def test_both_devices_count() -> None:
    found = transfers_per_call(two_devices_plan())

    assert (found, found.total) == (Transfers(32, 32), 64)


def test_a_program_of_the_host_copies_nothing() -> None:
    assert transfers_per_call(chain(3).execution_plan[0]).total == 0
