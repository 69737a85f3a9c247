"""Programs on devices, drawn at random: they compute what the object programs do, all in its place (A5, B2, B5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.linker import LinkOptions, link, link_foreign
from etdev.linker.options import ALL_ELISIONS
from etdev.program import model as m
from linker.oracle import Machine
from linker.programs import calls, objects
from linker.test_meaning import meaning

DEVICES = ("cuda:0", "cuda:1")


@pytest.mark.parametrize("planner", ["best", "naive"])
@pytest.mark.parametrize("elide", [True, False])
@given(data=st.data())
def test_linked(planner: str, elide: bool, data: st.DataObject) -> None:
    found = data.draw(objects(devices=DEVICES))
    made = data.draw(calls(["m0"]))
    options = LinkOptions(planner=planner, elide=ALL_ELISIONS if elide else frozenset())
    linked = link(found.program, options, found.sidecar).program
    assert meaning(found, made, linked) == meaning(found, made)


@given(data=st.data())
def test_private_state(data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=3, devices=DEVICES))
    made = data.draw(calls([plan.name for plan in found.program.execution_plan]))
    linked = link(found.program, LinkOptions(), found.sidecar).program
    wanted = meaning(found, made)
    assert meaning(found, made, linked) == wanted
    assert meaning(found, made, linked, shared=True) == wanted


@given(data=st.data())
def test_shared_state(data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=3, initial=False, devices=DEVICES))
    made = data.draw(calls([plan.name for plan in found.program.execution_plan]))
    linked = link(found.program, LinkOptions(share_state=True), found.sidecar).program
    assert meaning(found, made, linked, shared=True) == meaning(found, made, named=True)


@given(data=st.data())
def test_linked_again(data: st.DataObject) -> None:
    """What another link did for devices is taken back and derived anew."""
    found = data.draw(objects(devices=DEVICES))
    made = data.draw(calls(["m0"]))
    once = link(found.program, LinkOptions(), found.sidecar).program
    again = link_foreign(once).program
    assert meaning(found, made, again) == meaning(found, made)


def test_the_oracle_sees_a_missing_copy() -> None:
    """A delegate that gets a tensor of the host is refused."""
    from linker.oracle import Call, OracleError
    from linker.programs import Method, program

    method = Method()
    (out,) = method.delegate(method.input(32), device="cuda:0")
    method.outputs = [out]
    found = program(method)
    with pytest.raises(OracleError, match="not on its device"):
        Machine(found.program, inputs=found.inputs).run(Call())
    assert isinstance(found.program, m.Program)
