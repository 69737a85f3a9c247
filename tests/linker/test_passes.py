"""Laws of the passes: each keeps the meaning of a program, alone and after the others, in the documented order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.decisions import Elision
from etdev.linker import LinkOptions, link
from etdev.linker.link import with_addresses
from etdev.linker.passes import PASSES, Pass, run_passes
from etdev.linker.start import start
from etdev.linker.work import PassResult
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.analysis.flow import flow_graph
from etdev.program.check import check_structure
from etdev.program.delegates import delegate_inputs
from etdev.program.sidecar import Sidecar
from etdev.validator import Correspondence, validate_link
from linker.oracle import Machine
from linker.programs import Object
from linker.programs_drawn import calls, objects
from linker.test_meaning import meaning
from validator.test_proofs import carries, check

NAMES = [item.name for item in PASSES]
OPTIONS = LinkOptions(planner="naive")
DEVICES = ("cuda:0",)
ALWAYS = {"lift", "strip devices", "place on devices", "lift placed", "apply merges"}
"""Passes without which others are no program: delegates need tensors on their devices, and merges their addresses."""


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_the_order_is_the_documented_one(repository: Path) -> None:
    text = (repository / "docs/architecture.md").read_text("utf-8")
    section = text.partition("\n### Passes\n")[2].partition("\n### ")[0]
    assert re.findall(r"^\d+\. \*\*(.+?)\*\*", section, re.MULTILINE) == NAMES


def run(
    program: Program, sidecar: Sidecar | None, passes: Sequence[Pass], options: LinkOptions = OPTIONS
) -> tuple[PassResult, Program]:
    """Run passes; return their result, and the program with addresses after them."""
    numbers = range(len(program.execution_plan))
    result = run_passes(start(program, numbers, options, sidecar), options, passes)
    done = with_addresses(result, numbers, options).program
    check_structure(done)
    return result, done


def prefix(count: int, *, places: bool = False) -> list[Pass]:
    """Return the first passes, and those without which they are no program."""
    wanted = ALWAYS if places else {"apply merges"}
    return [item for number, item in enumerate(PASSES) if number < count or item.name in wanted]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(data=st.data())
def test_each_pass_alone_keeps_the_meaning(name: str, data: st.DataObject) -> None:
    passes = [item for item in PASSES if item.name == name or item.name in ALWAYS]
    found = data.draw(st.one_of(objects(most_methods=2), objects(most_methods=2, devices=DEVICES)))
    if carries(found):
        return  # A delegate of such a program may write over what it reads, with its link or without.
    made = data.draw(calls([plan.name for plan in found.program.execution_plan]))
    _, done = run(found.program, found.sidecar, passes)
    assert Machine(done, inputs=found.inputs).run(*made) == meaning(found, made)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(data=st.data())
@pytest.mark.sampled(6)
def test_each_pass_alone_keeps_the_meaning_of_foreign_programs(name: str, data: st.DataObject) -> None:
    passes = [item for item in PASSES if item.name == name or item.name in ALWAYS]
    found = data.draw(objects(delegates=False))
    made = data.draw(calls(["m0"]))
    once = link(found.program, OPTIONS, found.sidecar).program
    _, done = run(once, None, passes)
    assert Machine(done, inputs=found.inputs).run(*made) == meaning(found, made)


@pytest.mark.parametrize("count", range(len(PASSES) + 1))
@settings(max_examples=8)
@given(found=objects(most_methods=2))
@pytest.mark.sampled(6)
def test_each_prefix_is_proved(count: int, found: Object) -> None:
    if carries(found):
        return
    result, done = run(found.program, found.sidecar, prefix(count))
    inputs = {name: notes.delegate_inputs for name, notes in found.sidecar.methods.items()}
    check(validate_link(found.program, done, correspondences(found.program, result, inputs)))


@pytest.mark.parametrize("count", range(len(PASSES) + 1))
@settings(max_examples=8)
@given(found=objects(delegates=False))
@pytest.mark.sampled(6)
def test_each_prefix_on_a_foreign_program_is_proved(count: int, found: Object) -> None:
    if carries(found):
        return
    once = link(found.program, OPTIONS, found.sidecar).program
    result, done = run(once, None, prefix(count))
    inputs = {plan.name: delegate_inputs(once, plan) for plan in once.execution_plan}
    check(validate_link(once, done, correspondences(once, result, inputs), foreign=True))


def correspondences(
    program: Program, result: PassResult, inputs: Mapping[str, Mapping[int, int]]
) -> dict[str, Correspondence]:
    """Return the position maps for the validator."""
    return {
        plan.name: Correspondence(moved or {}, inputs[plan.name])
        for plan, moved in zip(program.execution_plan, result.moved, strict=True)
    }


@given(data=st.data())
def test_each_prefix_on_devices_keeps_the_meaning(data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=2, devices=DEVICES))
    made = data.draw(calls([plan.name for plan in found.program.execution_plan]))
    _, done = run(found.program, found.sidecar, prefix(data.draw(st.integers(0, len(PASSES))), places=True))
    assert Machine(done, inputs=found.inputs).run(*made) == meaning(found, made)


@given(found=objects(most_methods=2, devices=DEVICES))
def test_decisions_name_instructions_before_the_first_pass(found: Object) -> None:
    result, _ = run(found.program, found.sidecar, PASSES)
    for plan, decisions, moved in zip(found.program.execution_plan, result.decisions, result.moved, strict=True):
        instructions = flow_graph(plan).instructions
        for decision in decisions:
            call = instructions[decision.instruction]
            assert isinstance(call, m.KernelCall)
            assert operator_name(plan.operators[call.op_index]) == decision.operator
            gone = isinstance(decision, Elision) and decision.action in ("alias", "constant", "same value")
            assert not gone or decision.instruction not in (moved or {})


@given(found=objects(most_methods=2), count=st.integers(0, len(PASSES)))
def test_passes_run_in_two_parts_are_the_same(found: Object, count: int) -> None:
    """A joint result is the second part's, with positions that go through the first part's."""
    whole, _ = run(found.program, found.sidecar, PASSES)
    first = run_passes(
        start(found.program, range(len(found.program.execution_plan)), OPTIONS, found.sidecar), OPTIONS, PASSES[:count]
    )
    second = run_passes(first.work, OPTIONS, PASSES[count:])
    assert [method.plan for method in second.work.methods] == [method.plan for method in whole.work.methods]
    for one, other, moved in zip(first.moved, second.moved, whole.moved, strict=True):
        assert one is not None
        assert other is not None
        assert moved == {position: other[now] for position, now in one.items() if now in other}
