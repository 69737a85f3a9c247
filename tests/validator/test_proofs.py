"""The validator accepts all correct links: random programs, linked and linked again, with every planner (E2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.linker import Linked, LinkOptions, link
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from etdev.program.delegates import delegate_inputs, unsplit_call
from etdev.validator import Correspondence, ValidationReport, validate_file, validate_link
from linker.programs import Method, Object
from linker.programs import program as object_program
from linker.programs_drawn import objects

MANY = 2000
"""Number of programs under ``--slow``."""
OLDER = "which tensor a value is depends on"
"""Reason why methods are not validated whose loops pass on tensors, not bytes, between iterations.

No compiler emits such loops. The validator reports that it does not prove them.
"""


def proof(
    before: Program, linked: Linked, inputs: Mapping[str, Mapping[int, int]], *, foreign: bool = False
) -> ValidationReport:
    """Validate a link."""
    links = {report.name: Correspondence(report.renumbered, inputs.get(report.name, {})) for report in linked.methods}
    return validate_link(before, linked.program, links, shared_state=linked.shared_state, foreign=foreign)


def check(report: ValidationReport) -> None:
    """Check that the link is proved, or that the report says why it is not."""
    assert report.violations == ()
    assert all(item.reason.startswith(OLDER) for item in report.not_validated)


def check_link(found: Object, options: LinkOptions) -> None:
    """Check that a link of a program, and a link of that without the notes, are proved."""
    inputs = {name: notes.delegate_inputs for name, notes in found.sidecar.methods.items()}
    once = link(found.program, options, found.sidecar)
    check(proof(found.program, once, inputs))
    for plan in once.program.execution_plan:
        moved = next(report.renumbered for report in once.methods if report.name == plan.name)
        told = {moved[position]: count for position, count in inputs[plan.name].items()}
        if delegate_inputs(once.program, plan) != told or unsplit_call(plan, told):
            return  # Not emitted: it says nothing, or something wrong, about the inputs of delegates.
    again = link(once.program)
    check(
        proof(
            once.program,
            again,
            {plan.name: delegate_inputs(once.program, plan) for plan in once.program.execution_plan},
            foreign=True,
        )
    )


def carries(found: Object) -> bool:
    """Return whether a loop passes on tensors, not bytes, between iterations."""
    for plan in found.program.execution_plan:
        flow = flow_graph(plan)
        calls = flow.instructions
        loops = [
            (flow.blocks[way].start, block.end - 1)
            for number, block in enumerate(flow.blocks)
            for way in block.successors
            if way <= number
        ]
        moves = [(position, call.move_to) for position, call in enumerate(calls) if isinstance(call, m.MoveCall)]
        for start, end in loops:
            before = {value for position, value in moves if position < start}
            if any(start <= position < end and value in before for position, value in moves):
                return True
    return False


@pytest.mark.parametrize("planner", ["best", "greedy", "naive"])
@settings(max_examples=40)
@given(found=objects())
def test_links_are_proved(planner: str, found: Object) -> None:
    if not carries(found):
        check_link(found, LinkOptions(planner=planner))


@pytest.mark.parametrize("share", [True, False])
@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.sampled(1)
def test_links_with_state_are_proved(share: bool, data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=3, initial=not share, delegates=False))
    if not carries(found):
        check_link(found, LinkOptions(share_state=share))


@pytest.mark.slow
@settings(max_examples=MANY)
@given(found=objects())
def test_many_links_are_proved(found: Object) -> None:
    if not carries(found):
        check_link(found, LinkOptions())


@pytest.mark.slow
@settings(max_examples=MANY // 4)
@given(found=objects(most_methods=3))
def test_many_links_with_state_are_proved(found: Object) -> None:
    if not carries(found):
        check_link(found, LinkOptions())


@settings(max_examples=50)
@given(found=objects(delegates=False))
def test_what_is_linked_clobbers_nothing(found: Object) -> None:
    """The validator of single files agrees, for the program before the link and the one after it."""
    linked = link(found.program, LinkOptions(), found.sidecar).program
    for program in () if carries(found) else (found.program, linked):
        report = validate_file(program, {plan.name: delegate_inputs(program, plan) for plan in program.execution_plan})
        assert report.violations == ()


@pytest.mark.parametrize("freed", [True, False])
def test_a_link_that_reads_a_freed_tensor_is_refused(freed: bool) -> None:
    """Another value in the same bytes keeps its pointer."""
    method = Method()
    made = method.op(method.input(32))
    other = method.alias(made, 32)
    if freed:
        method.free(made)
    method.outputs = [method.op(other)]
    before = object_program(method).program
    plan = before.execution_plan[0]
    (chain,) = plan.chains
    *calls, last = chain.instructions
    assert isinstance(last, m.KernelCall)
    changed = replace(last, args=tuple(made if value == other else value for value in last.args))
    after = replace(before, execution_plan=(replace(plan, chains=(replace(chain, instructions=(*calls, changed)),)),))
    moved = {position: position for position in range(len(calls) + 1)}
    report = validate_link(before, after, {plan.name: Correspondence(moved)})
    assert [violation.message for violation in report.violations] == (
        [f"instruction 2 (aten::mm.out) reads value {made}, which was freed"] if freed else []
    )
