"""A link keeps the meaning of a program, and so does a second link."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etdev.decisions import ALL_ELISIONS
from etdev.linker import LinkOptions, link, link_foreign
from etdev.program import model as m
from etdev.program.check import check_structure
from etdev.program.delegates import delegate_inputs
from etdev.program.footprint import planned_memory
from linker.oracle import Call, Machine, Trace
from linker.programs import Object
from linker.programs_drawn import calls, objects
from support.draws import examples

PLANNERS = ("best", "greedy", "naive")
METHODS = ("m0", "m1", "m2")


def meaning(
    found: Object, made: list[Call], program: m.Program | None = None, *, shared: bool = False, named: bool = False
) -> list[Trace]:
    """Return the traces of an object program, or of another one that was made from it."""
    if program is not None:
        check_structure(program)
    state = found.named if named else {}
    placed = program is not None
    whole = program or found.program
    return Machine(whole, shared=shared, placed=placed, named=state, inputs=found.inputs).run(*made)


def memory(program: m.Program) -> list[int]:
    """Return the bytes of all buffers of each method."""
    return [sum(plan.non_const_buffer_sizes) for plan in program.execution_plan]


def total(program: m.Program) -> int:
    """Return the bytes of all buffers, each at its largest size in any method."""
    return planned_memory(program)["cpu"]


def link_again(program: m.Program) -> m.Program:
    """Link as ``etdev relink`` does."""
    return link_foreign(program).program


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("elide", [True, False])
@given(data=st.data())
def test_linked(planner: str, elide: bool, data: st.DataObject) -> None:
    found = data.draw(objects())
    made = data.draw(calls(METHODS[:1]))
    linked = link(
        found.program, LinkOptions(planner=planner, elide=ALL_ELISIONS if elide else frozenset()), found.sidecar
    )
    assert meaning(found, made, linked.program) == meaning(found, made)


@given(found=objects())
def test_size(found: Object) -> None:
    """No planner needs more memory than one that reuses nothing, and no link more than the object program."""
    sizes = {name: memory(link(found.program, LinkOptions(planner=name), found.sidecar).program) for name in PLANNERS}
    assert sizes["best"] <= sizes["greedy"]
    assert sizes["best"] <= sizes["naive"] <= memory(found.program)


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("elide", [True, False])
@given(data=st.data())
def test_linked_again(planner: str, elide: bool, data: st.DataObject) -> None:
    """From a plan that reuses memory, without notes, further links have the same result, in no more memory."""
    found = data.draw(objects(delegates=False))
    made = data.draw(calls(METHODS[:1]))
    once = link(
        found.program, LinkOptions(planner=planner, elide=ALL_ELISIONS if elide else frozenset()), found.sidecar
    ).program
    again = link_again(once)
    assert meaning(found, made, again) == meaning(found, made)
    assert total(link_again(again)) <= total(again) <= total(once)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(found=objects())
def test_inputs_of_delegates_are_told_right_or_not_at_all(found: Object) -> None:
    """An output at the address of an earlier tensor may look like a view. All other calls tell what they did."""
    (plan,), (notes,) = found.program.execution_plan, found.sidecar.methods.values()
    if delegate_inputs(found.program, plan) != notes.delegate_inputs:
        return  # The object program does not say which arguments are inputs.
    done = link(found.program, LinkOptions(), found.sidecar)
    moved = done.methods[0].renumbered
    wanted = {moved[position]: count for position, count in notes.delegate_inputs.items()}
    assert delegate_inputs(done.program, done.program.execution_plan[0]).items() <= wanted.items()


@given(data=st.data())
def test_private_state(data: st.DataObject) -> None:
    """State belongs to one method, whether the loader gives all methods the same buffers or not."""
    found = data.draw(objects(most_methods=3))
    made = data.draw(calls([plan.name for plan in found.program.execution_plan]))
    linked = link(found.program, LinkOptions(), found.sidecar)
    wanted = meaning(found, made)
    assert meaning(found, made, linked.program) == wanted
    assert meaning(found, made, linked.program, shared=True) == wanted
    assert not linked.shared_state


@given(data=st.data())
def test_shared_state(data: st.DataObject) -> None:
    """State of the same name is shared, with a loader that gives all methods the same buffers."""
    found = data.draw(objects(most_methods=3, initial=False))
    made = data.draw(calls([plan.name for plan in found.program.execution_plan]))
    linked = link(found.program, LinkOptions(share_state=True), found.sidecar)
    assert meaning(found, made, linked.program, shared=True) == meaning(found, made, named=True)


@pytest.mark.parametrize("share", [True, False])
@given(data=st.data())
def test_state_linked_again(share: bool, data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=3, initial=not share, delegates=False))
    made = data.draw(calls([plan.name for plan in found.program.execution_plan]))
    once = link(found.program, LinkOptions(share_state=share), found.sidecar).program
    again = link_again(once)
    assert meaning(found, made, again, shared=True) == meaning(found, made, named=share)
    assert total(link_again(again)) <= total(again) <= total(once)
