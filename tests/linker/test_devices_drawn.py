"""Random programs on devices: they compute what the object programs do, each part at its place (A5, B2, B5)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.decisions import ALL_ELISIONS
from etdev.linker import CallerOwned, LinkOptions, link_foreign
from etdev.program import model as m
from etdev.program.analysis.effects import ET_VIEW, Effects, effects
from etdev.program.analysis.flow import flow_graph
from etdev.program.analysis.storage import method_memory
from etdev.program.check import check_structure
from etdev.program.delegates import delegate_inputs, unsplit_call
from etdev.program.devices import D2H_COPY, H2D_COPY
from linker.ends import asked, check_ends, lent, linked_with
from linker.oracle import Call, Machine, OracleError, Trace
from linker.programs import Method, Object, program
from linker.programs_drawn import calls, objects
from linker.test_meaning import meaning as meaning_on_the_host
from support.draws import examples
from validator.test_proofs import carries, check_link

DEVICES = ("cuda:0", "cuda:1")


def meaning(
    found: Object, made: list[Call], program: m.Program, owned: Mapping[str, CallerOwned], *, shared: bool = False
) -> list[Trace]:
    """Return the traces of a linked program, for a caller that owns some of its inputs and outputs."""
    check_structure(program)
    check_ends(program, owned)
    return Machine(program, shared=shared, inputs=found.inputs, lent=lent(owned)).run(*made)


@pytest.mark.parametrize("planner", ["best", "naive"])
@pytest.mark.parametrize("elide", [True, False])
@given(data=st.data())
def test_linked(planner: str, elide: bool, data: st.DataObject) -> None:
    found = data.draw(objects(devices=DEVICES))
    made = data.draw(calls(["m0"]))
    options = LinkOptions(planner=planner, elide=ALL_ELISIONS if elide else frozenset())
    done, owned = linked_with(found, options, data.draw(asked(found)))
    assert meaning(found, made, done.program, owned) == meaning_on_the_host(found, made)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_private_state(data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=3, devices=DEVICES))
    made = data.draw(calls([plan.name for plan in found.program.execution_plan]))
    done, owned = linked_with(found, LinkOptions(), data.draw(asked(found)))
    wanted = meaning_on_the_host(found, made)
    assert meaning(found, made, done.program, owned) == wanted
    assert meaning(found, made, done.program, owned, shared=True) == wanted


@settings(max_examples=examples(60))
@given(data=st.data())
def test_shared_state(data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=3, initial=False, devices=DEVICES))
    made = data.draw(calls([plan.name for plan in found.program.execution_plan]))
    done, owned = linked_with(found, LinkOptions(share_state=True), data.draw(asked(found)))
    assert meaning(found, made, done.program, owned, shared=True) == meaning_on_the_host(found, made, named=True)


@given(data=st.data())
def test_linked_again(data: st.DataObject) -> None:
    """The second link discards the first one's copies and derives them again; inputs and outputs stay in place."""
    found = data.draw(objects(devices=DEVICES))
    made = data.draw(calls(["m0"]))
    once, owned = linked_with(found, LinkOptions(), data.draw(asked(found)))
    again = link_foreign(once.program).program
    assert meaning(found, made, again, owned) == meaning_on_the_host(found, made)


@settings(max_examples=examples(40))
@given(data=st.data())
def test_links_are_proved(data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=2, devices=DEVICES))
    _, owned = linked_with(found, LinkOptions(), data.draw(asked(found)))
    if not carries(found):
        check_link(found, LinkOptions(caller=owned))


@given(data=st.data())
def test_no_copy_is_made_twice_and_none_for_nobody(data: st.DataObject) -> None:
    """Without branches, a tensor is copied once after each write, and only if the other side reads it."""
    # Later passes may remove the reader of a copy.
    options = LinkOptions(elide=frozenset({"views", "constants"}))
    found = data.draw(objects(devices=DEVICES))
    linked, _ = linked_with(found, options, data.draw(asked(found)))
    plan = linked.program.execution_plan[0]
    calls = flow_graph(plan).instructions
    whole = found.program.execution_plan[0]
    storages = method_memory(whole, found.sidecar.methods["m0"].delegate_inputs).storages
    # A value that is another tensor, or a part of one, on some path is always on the host.
    doubtful = any(operator.name == ET_VIEW for operator in (*whole.operators, *plan.operators))
    doubtful |= any(len(storage.values) > 1 for storage in storages)
    doubtful |= any(isinstance(call, m.JumpFalseCall | m.MoveCall) for call in calls)
    if doubtful or _shares_bytes(linked.program):
        return
    unread: dict[int, int] = {}
    """Target of a copy that no instruction has read yet → its source."""
    copied: set[tuple[int, int]] = set()
    """Copies after which neither side was written."""
    for position, call in enumerate(calls):
        if isinstance(call, m.FreeCall):
            continue
        assert isinstance(call, m.KernelCall | m.DelegateCall)
        split = found.inputs["m0"][call.delegate_index] if isinstance(call, m.DelegateCall) else None
        done = effects(plan, call, split)
        # An instruction that reads and writes nothing asks for sizes.
        for value in call.args if done == Effects() else (*done.reads, *done.updates):
            unread.pop(value, None)
        written = {*done.writes, *done.updates, *done.fills}
        assert not written & unread.keys(), f"instruction {position} writes over a copy that nobody has read"
        if isinstance(call, m.KernelCall) and plan.operators[call.op_index].name in (H2D_COPY, D2H_COPY):
            pair = call.args[0], call.args[1]
            assert not {pair, pair[::-1]} & copied, f"instruction {position} copies what is there already"
            copied = {known for known in copied if not {*known} & written} | {pair}
            unread[pair[1]] = pair[0]
        else:
            copied = {known for known in copied if not {*known} & written}
    kept = {
        value for value, tensor in plan.tensors() if (info := tensor.extra_tensor_info) and info.fully_qualified_name
    }
    assert unread.keys() <= {*plan.outputs, *kept}


def _shares_bytes(program: m.Program) -> bool:
    """Return whether tensors share bytes, so that values do not tell which instruction reads what."""
    (plan,) = program.execution_plan
    inputs = delegate_inputs(program, plan)
    storages = method_memory(plan, inputs).storages
    return any(len(storage.values) > 1 for storage in storages) or unsplit_call(plan, inputs) is not None


def test_the_oracle_sees_a_missing_copy() -> None:
    """The oracle refuses a delegate that gets a tensor of the host."""
    method = Method()
    (out,) = method.delegate(method.input(32), device="cuda:0")
    method.outputs = [out]
    found = program(method)
    with pytest.raises(OracleError, match="not on its device"):
        Machine(found.program, inputs=found.inputs).run(Call())
