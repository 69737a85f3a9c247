"""The rung *plan* across methods: what the memory of one does to the state of another (E2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etdev.pipeline.verify.plan import check_memory_plan
from etdev.program.model import AllocationDetails
from linker.programs import Method, program
from support.files import counters


@pytest.mark.parametrize("second_at", [0, 16], ids=["state over state", "temporaries over state"])
def test_state_in_the_first_buffer_is_not_apart(second_at: int) -> None:
    found = counters(second_at=second_at)

    own, other = check_memory_plan(found), check_memory_plan(found, foreign=True)

    said = "method 'second' writes over the state of 'first' (value 1 in buffer 1)"
    assert (own.status, own.summary) == ("failed", said)
    assert other.status == "passed"
    assert other.summary.endswith(f"; where all methods have the same buffers, {said}")


@pytest.mark.parametrize("first", [16, 32, 64], ids=["a part", "all", "more"])
def test_methods_share_what_lies_at_the_same_place(first: int) -> None:
    """The first method only writes what the second one keeps, or a part of it, or more than that one looks at."""
    fills, keeps = Method("fills"), Method("keeps")
    fills.copy(_at(fills, first, 1024), fills.input(first))
    state = _at(keeps, 32, 1024)
    keeps.update(state, keeps.input(32))
    keeps.outputs = [keeps.op(state)]
    made = program(fills, keeps).program

    assert check_memory_plan(made).status == "passed"


def test_what_lies_across_state_disturbs_it() -> None:
    fills, keeps = Method("fills"), Method("keeps")
    fills.copy(_at(fills, 32, 1040), fills.input(32))
    keeps.update(_at(keeps, 32, 1024), keeps.input(32))

    found = check_memory_plan(program(fills, keeps).program)

    assert found.problems == ("method 'fills' writes over the state of 'keeps' (value 0 in buffer 2)",)


def _at(method: Method, nbytes: int, offset: int) -> int:
    """A tensor in buffer 2."""
    index = method.tensor(nbytes, planned=False)
    method.values[index] = replace(method.at(index), allocation_info=AllocationDetails(2, offset))
    return index
