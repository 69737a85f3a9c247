"""Reads of instructions in device programs: the judge of device mutants sees exactly the differences (B5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from etdev.devices import HOST, parse_device
from etdev.program import model as m
from support.on_devices import two_devices
from validator.drafts import Draft
from validator.reads import Call, Reads, read_by_instructions

CUDA1 = parse_device("cuda:1")


def _reads(draft: Draft) -> Reads:
    program = replace(two_devices(), execution_plan=(draft.plan,))
    calls = [Call("forward", 0), Call("forward", 1)]
    return read_by_instructions(program, calls, {"forward": [1, 1]}, {"forward": draft.names})


def _differs(change: Callable[[Draft], object]) -> bool:
    right, draft = (Draft(two_devices().execution_plan[0], Random(0)) for _ in range(2))
    change(draft)
    wanted = _reads(right)
    return any(what != wanted[key] for key, what in _reads(draft).items())


def _swap(draft: Draft) -> None:
    draft.set_place(3, 1, 32)
    draft.set_place(4, 1, 16)


@pytest.mark.parametrize("position", [0, 2, 4, 6])
def test_without_a_copy_something_else_is_read(position: int) -> None:
    assert _differs(lambda draft: draft.remove(position))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda draft: draft.set_buffer_device(2, CUDA1), id="a buffer of the device that the copy names not"
        ),
        pytest.param(lambda draft: draft.set_buffer_device(2, HOST), id="a buffer on the host"),
        pytest.param(lambda draft: draft.set_device(1, CUDA1), id="the tag of a copy's target"),
        pytest.param(lambda draft: draft.set_argument(1, 0, 0), id="a delegate gets a tensor of the host"),
        pytest.param(lambda draft: draft.set_argument(3, 0, 2), id="a kernel gets a tensor of a device"),
        pytest.param(lambda draft: draft.move(2, 1), id="a copy before the delegate that makes its source"),
        pytest.param(
            lambda draft: draft.set_call(0, m.KernelCall(1, (0, 1, 1))), id="a copy back instead of one there"
        ),
    ],
)
def test_something_else_is_read(change: Callable[[Draft], object]) -> None:
    """Each change moves one thing away from where it is read."""
    assert _differs(change)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda draft: None, id="nothing"),
        pytest.param(lambda draft: draft.set_place(7, 1, 0), id="over what nobody needs any more"),
        pytest.param(_swap, id="two tensors in each other's places"),
    ],
)
def test_the_same_is_read(change: Callable[[Draft], object]) -> None:
    assert not _differs(change)
