"""Outputs that reuse the bytes of a dying operand: rows C1 and C3 to C7."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.decisions import InPlace
from etdev.linker import Linked
from etdev.program import model as m
from etdev.program.analysis.inplace import Donor
from linker.checked import linked, size
from linker.programs import Method

RELU = "aten::relu.out"
ADD = "aten::add.out"


def decisions(done: Linked) -> list[tuple[int, int | None]]:
    """Return position and reused argument of each call that was considered."""
    return [(found.instruction, found.argument) for found in done.methods[0].inplace]


def reason(done: Linked) -> str:
    (found,) = done.methods[0].inplace
    assert found.argument is None
    return found.reason


# C1, C5


@pytest.mark.parametrize("planner", ["best", "greedy", "naive"])
def test_a_chain_takes_the_bytes_of_one_tensor(planner: str) -> None:
    """C5, C6: with every planner."""
    method = Method()
    value = method.op(method.input(64), nbytes=32)
    for _ in range(3):
        value = method.op(value, name=RELU)
    method.outputs = [value]
    done = linked(method, planner=planner)
    assert decisions(done) == [(1, 0), (2, 0), (3, 0)]
    assert size(done) == 96
    assert decisions(linked(method, planner=planner, inplace={})) == []


def test_an_input_in_planned_memory_is_given_up() -> None:
    method = Method()
    method.outputs = [method.op(method.input(32), name=RELU)]
    done = linked(method)
    assert size(done) == 32
    assert done.methods[0].inplace == (InPlace(0, RELU, 0, 0, 32),)


def test_any_argument_may_be_the_base() -> None:
    """C3."""
    method = Method()
    kept = method.op(method.input(32))
    dying = method.op(kept)
    method.outputs = [method.op(kept, dying, name=ADD), kept]
    done = linked(method)
    assert decisions(done) == [(2, 1)]


def test_one_tensor_as_both_operands() -> None:
    method = Method()
    value = method.op(method.input(64))
    method.outputs = [method.op(value, value, name=ADD)]
    assert decisions(linked(method)) == [(1, 0)]


def test_only_outputs_of_the_table_are_considered() -> None:
    """C5: one of several outputs."""
    method = Method()
    value = method.op(method.input(64))
    outs = [method.tensor(size) for size in (32, 16, 16)]
    method.kernel("aten::native_layer_norm.out", value, *outs, method.value(m.TensorList(tuple(outs))))
    method.outputs = outs
    done = linked(method)
    assert [(found.output, found.argument) for found in done.methods[0].inplace] == [(0, 0)]


def test_a_view_of_a_dying_tensor_may_be_the_base() -> None:
    method = Method()
    value = method.op(method.input(64))
    method.outputs = [method.op(method.view(value), name=RELU)]
    done = linked(method)
    assert decisions(done) == [(2, 0)]
    assert size(done) == 96


def test_a_free_does_not_block_another_tensor() -> None:
    """C7."""
    method = Method()
    unplanned = method.tensor(32, planned=False)
    value = method.op(method.input(64))
    method.calls.append(m.FreeCall(unplanned))
    method.outputs = [method.op(value, name=RELU)]
    assert decisions(linked(method)) == [(2, 0)]


@pytest.mark.parametrize("freed", ["the operand", "a view of the operand", "the output"])
def test_a_free_does_not_block_its_own_tensor(freed: str) -> None:
    """C7: a free resets one value's pointer. Other values in the same bytes keep theirs."""
    method = Method()
    value = method.op(method.input(64))
    view = method.view(value)
    out = method.op(view, name=RELU)
    result = method.op(out, nbytes=16)
    method.free({"the operand": value, "a view of the operand": view, "the output": out}[freed])
    method.outputs = [result]
    done = linked(method)
    assert decisions(done) == [(2, 0)]
    assert size(done) == 96


def test_what_dies_in_both_branches() -> None:
    method = Method()
    condition, x = method.input(16), method.input(32)
    merged = method.cond(
        condition,
        lambda: [method.op(method.op(x), name=RELU)],
        lambda: [method.op(method.op(x), name=RELU)],
    )
    method.outputs = [method.op(*merged, x)]
    assert [argument for _, argument in decisions(linked(method))] == [0, 0]


# C4


def needed_afterwards(method: Method) -> list[int]:
    value = method.op(method.input(32))
    return [method.op(value, name=RELU), method.op(value)]


def read_through_a_view(method: Method) -> list[int]:
    """Use a view of the base after the last use of the base itself."""
    base = method.op(method.input(32))
    view = method.view(base)
    return [method.op(base, name=RELU), method.op(view)]


def view_of_a_base_that_is_read(method: Method) -> list[int]:
    base = method.op(method.input(32))
    return [method.op(method.view(base), name=RELU), method.op(base)]


def result_that_outlives_a_base_that_is_an_output(method: Method) -> list[int]:
    base = method.op(method.input(32))
    return [method.op(base, name=RELU), base]


def constant(method: Method) -> list[int]:
    return [method.op(method.constant(32), name=RELU)]


def memory_of_the_caller(method: Method) -> list[int]:
    return [method.op(method.input(32, planned=False), name=RELU)]


def state(method: Method) -> list[int]:
    return [method.op(method.buffer(32, "cache"), name=RELU)]


def larger_output(method: Method) -> list[int]:
    return [method.op(method.input(32), name=RELU, nbytes=64)]


def another_type(method: Method) -> list[int]:
    value = method.input(32)
    out = method.value(m.Tensor(m.ScalarType.CHAR, (4, 8), (0, 1), allocation_info=m.AllocationDetails(1, 4096)))
    method.end = 8192
    method.kernel(RELU, value, out, out)
    return [out]


def another_order(method: Method) -> list[int]:
    value = method.input(32)
    out = method.value(m.Tensor(m.ScalarType.BYTE, (4, 8), (1, 0), allocation_info=m.AllocationDetails(1, 4096)))
    method.end = 8192
    method.kernel(RELU, value, out, out)
    return [out]


def part_of_another(method: Method) -> list[int]:
    whole = method.op(method.input(16), nbytes=64)
    return [method.op(method.alias(whole, 32, at=32), name=RELU)]


def one_of_several(method: Method) -> list[int]:
    condition, x = method.input(16), method.input(64)
    merged = method.cond(condition, lambda: [method.op(x)], lambda: [method.op(x)])
    return [method.op(*merged, name=RELU)]


def next_round(method: Method) -> list[int]:
    """Read a value in the next iteration of a loop."""
    value = method.op(method.input(64))
    out = method.tensor(32)
    with method.loop(3):
        method.kernel(RELU, value, out, out)
    return [out]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (needed_afterwards, "argument 0 is needed afterwards"),
        (read_through_a_view, "argument 0 is needed afterwards"),
        (view_of_a_base_that_is_read, "argument 0 is needed afterwards"),
        (result_that_outlives_a_base_that_is_an_output, "argument 0 is needed afterwards"),
        (constant, "argument 0 is a constant"),
        (memory_of_the_caller, "argument 0 is in memory that is not planned"),
        (state, "argument 0 is state, which is kept between calls"),
        (larger_output, "argument 0 has another shape, or may have one at run time"),
        (another_type, "argument 0 has another element type"),
        (another_order, "argument 0 has its dimensions in another order in memory"),
        (part_of_another, "argument 0 is a part of another tensor"),
        (one_of_several, "argument 0 may be one of several tensors"),
        (next_round, "argument 0 is needed afterwards"),
    ],
)
def test_refused(build: Callable[[Method], list[int]], why: str) -> None:
    method = Method()
    method.outputs = build(method)
    assert reason(linked(method)) == why


def output_nobody_planned(method: Method) -> list[int]:
    out = method.tensor(32, planned=False)
    method.kernel(RELU, method.input(32), out, out)
    return [out]


def output_that_is_state(method: Method) -> list[int]:
    cache, value = method.buffer(32, "cache"), method.op(method.input(64))
    result = method.op(cache)
    method.kernel(RELU, value, cache, cache)
    return [result]


def output_in_a_part(method: Method) -> list[int]:
    value = method.op(method.input(64))
    whole = method.tensor(64)
    first, out = method.alias(whole, 32), method.alias(whole, 32, at=32)
    method.kernel("aten::mm.out", value, first, first)
    method.kernel(RELU, value, out, out)
    return [method.op(whole)]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (output_nobody_planned, "the memory of its output is not planned"),
        (output_that_is_state, "its output is state"),
        (output_in_a_part, "its output is a part of another tensor"),
    ],
)
def test_outputs_that_have_their_place(build: Callable[[Method], list[int]], why: str) -> None:
    method = Method()
    method.outputs = build(method)
    assert reason(linked(method)) == why


def test_another_argument_in_the_same_bytes() -> None:
    method = Method()
    value = method.op(method.input(64))
    method.outputs = [method.op(value, method.alias(value, 32), name="my::fused.out")]
    done = linked(method, inplace={"my::fused.out": (Donor(0),)})
    assert reason(done) == "argument 0 shares bytes with argument 1"


# Sizes at run time


def test_a_dynamic_tensor_of_the_same_shape() -> None:
    method = Method()
    value = method.op(method.input(32, dynamic=True), dynamic=True)
    method.outputs = [method.op(value, name=RELU, dynamic=True)]
    assert decisions(linked(method)) == [(1, 0)]


def test_an_operand_that_may_be_broadcast_at_run_time() -> None:
    """C4: the bounds are equal, the sizes may be 1 and 4."""
    method = Method()
    one, other = (method.op(method.input(32, dynamic=True), dynamic=True) for _ in range(2))
    method.outputs = [method.op(one, other, name=ADD, dynamic=True)]
    assert reason(linked(method)) == "; ".join(
        f"argument {argument} has another shape, or may have one at run time" for argument in (0, 1)
    )


def test_an_operand_whose_shape_is_that_of_the_other() -> None:
    method = Method()
    one = method.op(method.input(32, dynamic=True), dynamic=True)
    other = method.op(one, name=RELU, dynamic=True)
    method.outputs = [method.op(one, other, name=ADD, dynamic=True)]
    assert decisions(linked(method)) == [(1, None), (2, 0)]
