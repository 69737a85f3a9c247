"""Rules of the check *placement* for memory banks: wrong sizes, wrong ids and ignored pins are found (G1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from etdev.config.tables.memory import Memory
from etdev.linker import LinkOptions, link
from etdev.linker.banks import Banks
from etdev.pipeline.results.result import CheckResult
from etdev.planner.banks import Bank
from etdev.program import Program
from etdev.program import model as m
from etdev.program.delegates import delegate_inputs
from etdev.program.sidecar import MethodNotes
from etdev.verification.bank_rules import bank_problems
from etdev.verification.checks.placement import PlacementCheck
from etdev.verification.subject import Subject
from linker.programs import Method, program

INPUTS = {"forward": ["x"]}


def memory(pin: dict[str, object] | None = None, **sizes: int) -> Memory:
    """Return a config with a fast and a slow bank."""
    banks = [
        {"name": "fast", "id": 1, "size": sizes.get("fast", 1024)},
        {"name": "slow", "id": 2, "size": sizes.get("slow", 1024)},
    ]
    return Memory.model_validate({"banks": banks, "pin": pin or {}})


def banked() -> Program:
    """Return a program whose tensors are all in the bank `fast`."""
    method = Method("forward")
    x = method.input(64)
    method.outputs = [method.op(x, nbytes=64)]
    made = program(method)
    banks = Banks((Bank("fast", 1024, 16), Bank("slow", 1024, 16)), (1, 2))
    return link(made.program, LinkOptions(banks=banks), made.sidecar).program


def moved(found: Program, value: int) -> Program:
    """Return the program with a tensor in bank 2 instead of bank 1."""
    (plan,) = found.execution_plan
    values = list(plan.values)
    tensor = values[value]
    assert isinstance(tensor, m.Tensor)
    values[value] = replace(tensor, allocation_info=m.AllocationDetails(2, 0))
    sizes = [*plan.non_const_buffer_sizes, 0][:2]
    plan = replace(plan, values=tuple(values), non_const_buffer_sizes=(*sizes, 64))
    return replace(found, execution_plan=(plan,))


def test_a_link_into_banks_passes() -> None:
    everything = {"inputs": "fast", "outputs": {"0": "fast"}, "state": "slow"}
    assert list(bank_problems(banked(), memory(everything), INPUTS, {})) == []
    assert list(bank_problems(banked(), Memory(), INPUTS, {})) == []


def test_a_bank_that_is_too_full_is_found() -> None:
    (problem,) = bank_problems(banked(), memory(fast=16), INPUTS, {})
    assert "buffer 1 has " in problem
    assert "but bank 'fast' has only 16" in problem


def test_a_buffer_without_a_bank_is_found() -> None:
    only = Memory.model_validate({"banks": [{"name": "fast", "id": 1, "size": 1024}]})
    plan = banked().execution_plan[0]
    (problem,) = bank_problems(moved(banked(), plan.inputs[0]), only, INPUTS, {})
    assert "buffer 2 on the host belongs to no bank" in problem


@pytest.mark.parametrize(
    ("pin", "what"),
    [
        ({"inputs": "fast"}, "input 'x'"),
        ({"inputs": {"x": "fast"}}, "input 'x'"),
        ({"outputs": "fast"}, "output 0"),
        ({"outputs": {"0": "fast"}}, "output 0"),
    ],
)
def test_an_ignored_pin_is_found(pin: dict[str, object], what: str) -> None:
    found = banked()
    plan = found.execution_plan[0]
    value = (plan.inputs if "inputs" in pin else plan.outputs)[0]
    (problem,) = bank_problems(moved(found, value), memory(pin), INPUTS, {})
    assert f"`memory.pin` requires {what} in bank 'fast', but the file has it in bank 'slow'" in problem


def ambiguous() -> tuple[Program, Mapping[int, int]]:
    """Return a program with a delegate call, and the call's number of inputs.

    The first output may be a view of ``one``, so the file does not tell it from an input.
    """
    method = Method("forward")
    one = method.op(method.input(64), nbytes=64)
    outs = method.delegate(method.op(one, nbytes=32), nbytes=(64, 32))
    tensor = method.values[one]
    assert isinstance(tensor, m.Tensor)
    method.values[outs[0]] = tensor
    method.outputs = [method.op(*outs, nbytes=64)]
    (plan,) = (found := program(method).program).execution_plan
    assert delegate_inputs(found, plan) == {}
    return found, method.delegate_inputs


def test_outputs_of_a_delegate_are_no_state_if_their_number_is_unknown() -> None:
    found, inputs = ambiguous()
    pinned = memory({"state": "slow"})
    assert list(bank_problems(found, pinned, INPUTS, {})) == []
    assert list(bank_problems(found, pinned, INPUTS, {"forward": inputs})) == []


def check(found: Program, pin: dict[str, object], notes: dict[str, MethodNotes]) -> CheckResult:
    """Return the result of the check *placement* for a file that was built before."""
    target = SimpleNamespace(memory=memory(pin), budget=SimpleNamespace(memory={}))
    project = SimpleNamespace(config=SimpleNamespace(targets={"t": target}))
    origin = SimpleNamespace(
        project=project,
        target="t",
        reference=SimpleNamespace(signatures={}),
        notes=notes,
        build_command="etdev build",
        place=lambda *key: ".".join(key),
    )
    return PlacementCheck().run(cast("Subject", SimpleNamespace(program=found, origin=origin)))


def test_a_pin_of_all_state_is_not_checked_if_the_state_is_unknown() -> None:
    found, inputs = ambiguous()
    unknown = check(found, {"state": "slow"}, {})
    assert unknown.status == "not run"
    assert unknown.summary.startswith("method 'forward': `memory.pin` requires all state in bank 'slow', but the file ")
    assert (unknown.where, (unknown.hint or "")[:29]) == ("memory.pin.state", "build it again (`etdev build`")
    assert check(found, {"state": "slow"}, {"forward": MethodNotes(inputs)}).status == "passed"
    assert check(found, {}, {}).status == "passed"
