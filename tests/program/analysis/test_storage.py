"""Storages: tensors that must stay together, their lifetimes, state, and wrong plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest

from etdev.errors import ExitCode, LinkError
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory, method_memory
from linker.programs import Method

Spans = dict[tuple[int, ...], tuple[int, int] | Literal["state"]]
"""Values of a storage → lifetime as a half-open range of instants, or state."""
DYNAMIC, UNBOUND = m.TensorShapeDynamism.DYNAMIC_BOUND, m.TensorShapeDynamism.DYNAMIC_UNBOUND


def memory(method: Method, *persistent: int) -> MethodMemory:
    return method_memory(method.plan(), method.delegate_inputs, persistent)


def spans(method: Method, *persistent: int) -> Spans:
    return {
        item.values: "state" if item.persistent else (item.start, item.end)
        for item in memory(method, *persistent).storages
    }


def put(method: Method, value: int, over: int, at: int = 0) -> None:
    """Place a tensor over another one, as a plan that reuses memory does."""
    place = method.at(over).allocation_info
    method.values[value] = replace(
        method.at(value), allocation_info=m.AllocationDetails(place.memory_id, place.memory_offset + at)
    )


# Lifetimes: 0 is when the caller fills the inputs, 1 + position an instruction, 1 + their number the outputs


def test_a_value_is_in_use_from_its_write_to_its_last_read() -> None:
    method = Method()
    data = method.input(32)
    one = method.op(data)
    two = method.op(one)
    three = method.op(one, two)
    method.outputs = [three]
    assert spans(method) == {(data,): (0, 2), (one,): (1, 4), (two,): (2, 4), (three,): (3, 5)}
    assert memory(method).instants == 5


def test_what_nobody_reads_is_in_use_while_it_is_written() -> None:
    method = Method()
    data, unread = method.input(32), method.input(16)
    one = method.op(data)
    assert spans(method) == {(data,): (0, 2), (unread,): (0, 1), (one,): (1, 2)}


def test_what_only_a_free_or_a_size_looks_at_is_never_in_use() -> None:
    method = Method()
    method.input(16)
    named = method.tensor(32)
    method.kernel("aten::sym_size.int", named, method.value(m.Int(0)), method.value(m.Int(0)))
    method.calls.append(m.FreeCall(named))
    assert spans(method)[named,] == (0, 0)


def test_a_value_that_is_written_anew_is_in_use_in_between_too() -> None:
    """Its bytes are free in between, but a storage has one lifetime."""
    method = Method()
    data = method.input(32)
    one = method.op(data)
    method.op(one)
    method.op(data)
    method.copy(one, data)
    method.op(one)
    assert spans(method)[one,] == (1, 6)


def test_a_value_for_one_side_of_a_branch_is_in_use_up_to_there() -> None:
    method = Method()
    data = method.input(32)
    one, two = method.op(data), method.op(data)
    method.cond(data, lambda: [method.op(two)], lambda: [method.op(one)])
    # Jump 2, one side 3 to 5, the other 6 and 7.
    found = spans(method)
    assert found[one,] == (1, 8)
    assert found[two,] == (2, 5)


def test_what_the_sides_of_a_branch_leave_is_in_use_until_the_merged_value_is_read() -> None:
    method = Method()
    data = method.input(32)
    merged, one, other = method.branches(data)
    last = method.op(merged)
    # Jump 0, one side 1 to 3, the other 4 and 5, the reader 6. The merged value's own place is never used.
    assert spans(method) == {(data,): (0, 6), (one,): (2, 8), (other,): (5, 8), (last,): (7, 8), (merged,): (0, 0)}


def test_what_a_loop_reads_is_in_use_until_its_last_round_ends() -> None:
    method = Method()
    data, kept = method.input(32), method.input(32)
    with method.loop(3):
        new = method.op(data)
        method.op(new, kept)
    last = len(method.calls) - 2  # The jump back.
    found = spans(method)
    assert found[data,] == found[kept,] == (0, last + 2)
    assert found[new,] == (1, 3)


def test_what_a_round_leaves_for_the_next_is_in_use_all_through_the_loop() -> None:
    method = Method()
    data = method.input(32)
    carry = method.op(data)
    with method.loop(3):
        method.op(data)
        new = method.op(carry)
        method.op(data)
        method.copy(carry, new)
    jump = len(method.calls) - 2
    assert spans(method)[carry,] == (1, jump + 2)
    assert spans(method)[new,] == (3, 6)


def test_what_is_carried_by_moves_is_in_use_all_through_the_loop() -> None:
    method = Method()
    first, carry = method.input(32), method.tensor(32)
    method.move(first, carry)
    new = method.op(carry)
    method.op(new)
    method.move(new, carry)
    method.repeat_while_false(first, 1)
    method.outputs = [carry]
    found = spans(method)
    assert found[first,] == (0, 6)
    assert found[new,] == (2, 7)


def test_a_value_of_a_loop_inside_a_loop_that_the_outer_one_needs_is_in_use_in_both() -> None:
    method = Method()
    data = method.input(32)
    outer = method.op(data)
    with method.loop(3):
        with method.loop(2):
            inner = method.op(outer)
        method.copy(outer, data)
    jump = len(method.calls) - 2
    assert spans(method)[outer,] == (1, jump + 2)
    assert spans(method)[inner,] == (2, 3)


def test_what_a_loop_may_write_to_something_else_is_needed_in_its_next_round() -> None:
    """Only one of the two is written, and the other one keeps its content."""
    method = Method()
    data = method.input(32)
    one, two = method.op(data), method.op(data)
    (merged,) = method.cond(data, lambda: [one], lambda: [two])
    with method.loop(3):
        method.copy(merged, data)
        method.op(one, two)
        method.op(data)
    jump = len(method.calls) - 2
    found = spans(method)
    assert found[one,] == (1, jump + 2)
    assert found[two,] == (2, jump + 2)


def test_what_a_loop_writes_half_of_is_needed_in_its_next_round() -> None:
    method = Method()
    data = method.input(32)
    whole = method.tensor(64)
    halves = [method.alias(whole, 32, at) for at in (0, 32)]
    for half in halves:
        method.copy(half, data)
    with method.loop(3):
        method.copy(halves[0], data)
        method.op(whole)
        method.op(data)
    jump = len(method.calls) - 2
    assert spans(method)[whole, *halves] == (1, jump + 2)


def test_what_a_loop_writes_all_of_is_over_when_it_is_read() -> None:
    method = Method()
    data = method.input(32)
    whole = method.op(data)
    with method.loop(3):
        method.copy(whole, data)
        method.op(whole)
        method.op(data)
    assert spans(method)[whole,] == (1, 4)


def test_a_place_that_is_written_in_halves_is_in_use_from_the_first_half() -> None:
    method = Method()
    data = method.input(64)
    whole = method.tensor(64)
    halves = [method.alias(whole, 32, at) for at in (0, 32)]
    for half in halves:
        method.copy(half, data)
    method.outputs = [whole]
    assert spans(method)[whole, *halves] == (1, 4)
    assert memory(method).storages[1].writes == (1, 2)


def test_a_method_that_jumps_to_its_end_needs_its_outputs_on_both_ways() -> None:
    method = Method()
    data = method.input(32)
    one = method.op(data)
    method.calls.append(m.JumpFalseCall(data, 4))
    two = method.op(one)
    method.copy(one, two)
    method.outputs = [one]
    assert spans(method) == {(data,): (0, 3), (one,): (1, 6), (two,): (3, 5)}


# Tensors that form one storage


def test_tensors_that_reuse_bytes_are_apart() -> None:
    method = Method()
    data = method.input(32)
    one = method.op(data)
    two = method.op(one)
    put(method, two, data)
    method.outputs = [method.op(two)]
    assert spans(method)[data,] == (0, 2)
    assert spans(method)[two,] == (2, 4)


def test_a_view_without_an_instruction_is_with_what_it_shows() -> None:
    method = Method()
    one = method.op(method.input(64), nbytes=64)
    view = method.alias(one, 32, 32)
    method.outputs = [view]
    found = memory(method).storages[1]
    assert (found.values, found.size, found.start, found.end) == ((one, view), 64, 1, 3)
    assert found.offset == method.at(one).allocation_info.memory_offset


def test_a_view_that_reaches_further_makes_its_storage_larger() -> None:
    """The bytes past the end hold nothing, but the tensor needs them."""
    method = Method()
    one = method.op(method.input(32))
    view = method.alias(one, 64)
    method.outputs = [view]
    found = memory(method)
    assert found.storages[found.of[one]].values == (one, view)
    assert found.storages[found.of[one]].size == 64


def test_the_parts_of_a_tensor_and_the_whole_are_together() -> None:
    method = Method()
    data = method.input(32)
    parts = [method.op(data), method.op(data)]
    whole = method.tensor(64)
    put(method, parts[0], whole)
    put(method, parts[1], whole, 32)
    method.outputs = [whole]
    assert spans(method) == {(data,): (0, 3), (*parts, whole): (1, 4)}


def test_the_sides_of_a_branch_are_apart_from_each_other() -> None:
    method = Method()
    data = method.input(32)
    merged, one, other = method.branches(data)
    method.outputs = [merged]
    assert (one,) in spans(method)
    assert (other,) in spans(method)


def test_a_value_that_only_names_others_needs_no_bytes() -> None:
    method = Method()
    data = method.input(32)
    name = method.like(data)
    method.move(data, name)
    method.outputs = [name]
    assert spans(method) == {(data,): (0, 3), (name,): (0, 0)}


def test_a_view_of_a_merged_value_uses_both_of_its_sides() -> None:
    method = Method()
    data = method.input(32)
    one, two = method.op(data), method.op(data)
    (merged,) = method.cond(data, lambda: [one], lambda: [two])
    method.op(data)
    method.outputs = [method.et_view(merged)]
    found = spans(method)
    assert found[one,] == (1, 10)
    assert found[two,] == (2, 10)


def test_a_tensor_of_a_dynamic_size_takes_what_it_may_take() -> None:
    method = Method()
    one = method.op(method.input(64, dynamic=True), nbytes=64, dynamic=True)
    method.outputs = [one]
    assert [item.size for item in memory(method).storages] == [64, 64]


@pytest.mark.parametrize("change", [{"shape_dynamism": UNBOUND}, {"sizes": (0, 8)}], ids=["unbounded", "empty"])
def test_a_tensor_without_bytes_has_no_storage(change: dict[str, object]) -> None:
    method = Method()
    one = method.op(method.input(32))
    method.values[one] = replace(method.at(one), **change)
    method.outputs = [one]
    assert one not in memory(method).of
    assert list(spans(method)) == [(method.inputs[0],)]


def test_empty_tensors_at_one_address_share_nothing() -> None:
    method = Method()
    data, empty = method.input(32), method.tensor(0)
    put(method, empty, data)
    method.outputs = [empty]
    assert spans(method) == {(data,): (0, 1)}


def filled_over(method: Method) -> tuple[int, int, int]:
    """Append rows at the place of another tensor. Also return the position of the appending instruction."""
    data = method.input(16)
    other = method.op(data, nbytes=64)
    method.op(other)
    filled = method.tensor(64, dynamic=True)
    put(method, filled, other)
    with method.loop(4) as counter:
        row = method.op(data, nbytes=16)
        method.kernel("executorch_prim::et_copy_index.tensor", filled, row, counter)
        at = len(method.calls) - 1
    method.outputs = [filled]
    return other, filled, at


def test_what_is_filled_in_does_not_belong_to_what_lay_there_before() -> None:
    method = Method()
    other, filled, at = filled_over(method)
    assert spans(method)[other,] == (1, 3)
    # In use throughout the loop, which begins one instruction earlier.
    assert spans(method)[filled,] == (at, len(method.calls) + 2)


@pytest.mark.parametrize("between", [False, True])
def test_nor_does_what_a_single_row_is_written_over_unless_it_came_between_two_rows(between: bool) -> None:
    method = Method()
    data = method.input(16)
    filled, other = method.tensor(64, dynamic=True), method.tensor(32)
    put(method, filled, other)
    rows = [method.value(m.Int(0)), method.value(m.Int(1))]
    if between:
        method.kernel("executorch_prim::et_copy_index.tensor", filled, data, rows[0])
    method.kernel("aten::relu.out", data, other, other)
    method.kernel("executorch_prim::et_copy_index.tensor", filled, data, rows[between])
    method.outputs = [filled]
    assert ((filled, other) in spans(method)) == between


def test_not_even_if_an_unknown_operator_changed_it_afterwards() -> None:
    method = Method()
    other, filled, _ = filled_over(method)
    method.kernel("my::update", filled, 0)
    assert (other,) in spans(method)
    assert (filled,) in spans(method)


def test_not_even_if_an_unknown_operator_changes_it_in_each_round() -> None:
    method = Method()
    data = method.input(16)
    other = method.op(data, nbytes=64)
    filled = method.tensor(64, dynamic=True)
    put(method, filled, other)
    with method.loop(4) as counter:
        row = method.op(data, nbytes=16)
        method.kernel("executorch_prim::et_copy_index.tensor", filled, row, counter)
        method.kernel("my::update", filled, data)
    method.outputs = [filled]
    assert (other,) in spans(method)
    assert (filled,) in spans(method)


def test_an_alias_that_is_changed_in_each_round_belongs_to_what_is_filled_in() -> None:
    method = Method()
    data = method.input(16)
    filled = method.tensor(64, dynamic=True)
    alias = method.alias(filled, 16, 16)
    with method.loop(4) as counter:
        row = method.op(data, nbytes=16)
        method.kernel("my::update", alias, data)
        method.kernel("executorch_prim::et_copy_index.tensor", filled, row, counter)
    method.outputs = [filled]
    assert (filled, alias) in spans(method)


def test_what_is_not_filled_in_yet_may_hold_what_others_wrote() -> None:
    """Another tensor is at the place of the last row. A reader of all rows in the middle does not read it."""
    method = Method()
    data = method.input(16)
    filled = method.op(data, nbytes=64, name="aten::full.out")
    with method.loop(4) as counter:
        row = method.op(data, nbytes=16)
        put(method, row, filled, 48)
        method.kernel("executorch_prim::et_copy_index.tensor", filled, row, counter)
        method.op(filled)
    assert (filled, row) in spans(method)


def test_what_an_unknown_operator_may_have_read_before_it_is_filled_belongs_to_it() -> None:
    method = Method()
    data = method.input(16)
    other = method.op(data, nbytes=64)
    filled = method.tensor(64, dynamic=True)
    put(method, filled, other)
    method.kernel("my::update", filled, data)
    with method.loop(4) as counter:
        row = method.op(data, nbytes=16)
        method.kernel("executorch_prim::et_copy_index.tensor", filled, row, counter)
    method.outputs = [filled]
    assert (other, filled) in spans(method)


def test_values_that_nobody_refers_to_have_no_storage() -> None:
    method = Method()
    method.outputs = [method.input(32)]
    unused = method.tensor(32)
    assert unused not in memory(method).of


# State


def test_what_is_read_before_it_is_written_is_state() -> None:
    method = Method()
    state = method.tensor(32)
    method.outputs = [method.op(state)]
    assert spans(method)[state,] == "state"
    (found,) = (item for item in memory(method).storages if item.persistent)
    assert (found.start, found.end) == (0, 3)


def test_what_is_read_before_it_is_written_on_one_way_only_is_state() -> None:
    method = Method()
    data, maybe = method.input(32), method.tensor(32)

    def write() -> list[int]:
        method.copy(maybe, data)
        return []

    method.cond(data, write, list)
    method.outputs = [maybe]
    assert spans(method)[maybe,] == "state"


def test_what_is_read_in_the_first_round_before_it_is_written_is_state() -> None:
    method = Method()
    data, carry = method.input(32), method.tensor(32)
    with method.loop(3):
        new = method.op(data, carry)
        method.copy(carry, new)
    assert spans(method)[carry,] == "state"


DECLARED: dict[str, dict[str, object]] = {
    "an initial value": {"data_buffer_idx": 1},
    "a name": {"extra_tensor_info": m.ExtraTensorInfo(fully_qualified_name="cache")},
}


@pytest.mark.parametrize("what", DECLARED)
def test_what_the_file_declares_is_state(what: str) -> None:
    """Even if all of it is written before it is read."""
    method = Method()
    value = method.op(method.input(32))
    method.outputs = [value]
    assert spans(method)[value,] == (1, 3)
    method.values[value] = replace(method.at(value), **DECLARED[what])
    assert spans(method)[value,] == "state"


def test_what_is_known_to_be_kept_is_state_though_nobody_refers_to_it() -> None:
    method = Method()
    method.outputs = [method.input(32)]
    unused = method.tensor(32)
    assert spans(method, unused)[unused,] == "state"


def test_a_constant_with_a_name_is_no_state() -> None:
    method = Method()
    weight = method.tensor(
        32, planned=False, data_buffer_idx=1, extra_tensor_info=m.ExtraTensorInfo(fully_qualified_name="weight")
    )
    method.outputs = [method.op(weight)]
    assert not any(item.persistent for item in memory(method).storages)


def test_a_buffer_that_is_changed_is_one_with_what_it_becomes() -> None:
    """Upstream places the result of a mutation over the buffer; the next call finds it there."""
    method = Method()
    state = method.tensor(32)
    changed = method.op(state)
    put(method, changed, state)
    assert spans(method) == {(state, changed): "state"}


def test_a_result_over_a_part_of_a_buffer_is_one_with_it_too() -> None:
    method = Method()
    state = method.tensor(64)
    method.op(state)
    changed = method.op(state, nbytes=16)
    put(method, changed, state, 32)
    assert spans(method)[state, changed] == "state"


def test_what_lay_over_a_result_that_stays_is_state_with_it() -> None:
    """At the end the bytes come from ``part`` and from ``changed``; both are at the place that the next call reads."""
    method = Method()
    state = method.tensor(64)
    changed = method.op(state, nbytes=64)
    put(method, changed, state)
    part = method.op(changed, nbytes=16)
    put(method, part, state, 32)
    assert spans(method) == {(state, changed, part): "state"}


def test_the_views_of_a_buffer_that_is_only_read_are_one() -> None:
    method = Method()
    state = method.tensor(64)
    views = [method.alias(state, 32, at) for at in (0, 32)]
    method.op(state)
    method.op(*views)
    found = memory(method).storages[memory(method).of[state]]
    assert found.values == (state, *views)
    assert found.size == 64
    assert found.persistent


def test_buffers_that_only_touch_are_apart() -> None:
    method = Method()
    one = method.tensor(64)
    two = method.tensor(32)
    put(method, two, one, 64)
    method.op(one, two)
    assert spans(method) == {(one,): "state", (two,): "state", (2,): (1, 2)}


def test_buffers_at_one_offset_of_two_buffers_are_apart() -> None:
    method = Method()
    one, two = method.tensor(32), method.tensor(32)
    put(method, two, one)
    place = method.at(two).allocation_info
    method.values[two] = replace(method.at(two), allocation_info=replace(place, memory_id=2))
    method.op(one, two)
    assert {(one,), (two,)} <= spans(method).keys()


# Plans that are wrong


def clobbered(method: Method) -> LinkError:
    """Return the error for a wrong plan."""
    with pytest.raises(LinkError) as refused:
        memory(method)
    assert refused.value.exit_code is ExitCode.BUILD_FAILED
    assert refused.value.where == "method 'forward'"
    assert refused.value.hint == "build the program again from its model with etdev: the plan of this file is wrong"
    return refused.value


def reuse(method: Method, reader: Callable[[int], object]) -> int:
    """Place two values in the same bytes, 128 to 160; the first is read after the second was written."""
    data = method.input(32)
    one = method.op(data)
    two = method.op(data)
    put(method, two, one)
    reader(one)
    return one


READERS: dict[str, tuple[Callable[[Method], Callable[[int], object]], str]] = {
    "a kernel": (lambda method: method.op, "instruction 2 (aten::mm.out) reads value 1"),
    "a delegate": (lambda method: method.delegate, "instruction 2 (MyBackend) reads value 1"),
    "a jump": (
        lambda method: lambda one: method.repeat_while_false(one, 3),
        "instruction 2 (JumpFalseCall) reads value 1",
    ),
    "the caller": (lambda method: method.outputs.append, "the caller (outputs) reads value 1"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_read_of_what_was_written_over_is_refused(name: str) -> None:
    method = Method()
    reader, words = READERS[name]
    reuse(method, reader(method))
    assert clobbered(method).message == (
        f"{words} at bytes 128 to 160 of buffer 1 after instruction 1 (aten::mm.out) overwrote these bytes"
    )


def test_it_is_refused_if_only_a_part_was_written_over() -> None:
    method = Method()
    data = method.input(32)
    one = method.op(data)
    two = method.op(data, nbytes=16)
    put(method, two, one, 16)
    method.outputs = [one]
    assert clobbered(method).message == (
        "the caller (outputs) reads value 1 at bytes 128 to 160 of buffer 1 "
        "after instruction 1 (aten::mm.out) overwrote these bytes"
    )


def test_it_is_refused_if_it_happens_on_one_way_only() -> None:
    method = Method()
    data = method.input(32)
    one = method.op(data)

    def side() -> list[int]:
        put(method, method.op(data), one)
        return []

    method.cond(data, side, list)
    method.outputs = [one]
    assert "after instruction 2 (aten::mm.out) overwrote these bytes" in clobbered(method).message


def test_it_is_refused_through_a_merged_value_and_says_which_tensor_that_is() -> None:
    """The second of two branches writes over the result of the first: ExecuTorch 1.4.1 plans so."""
    method = Method()
    data = method.input(32)
    first, left, _ = method.branches(data)
    second, later, _ = method.branches(data)
    put(method, later, left)
    method.outputs = [method.op(first, second)]
    assert (first, left) == (2, 1)
    assert clobbered(method).message == (
        "instruction 12 (aten::mm.out) reads value 2 (here the tensor of value 1) at bytes 128 to 160 of buffer 1 "
        "after instruction 7 (aten::mm.out) overwrote these bytes"
    )


def test_an_input_may_be_what_wrote_over_it() -> None:
    method = Method()
    data = method.input(32)
    carry = method.tensor(32)
    method.op(carry)
    method.copy(carry, data)
    put(method, carry, data)
    assert "after the caller (inputs) overwrote these bytes" in clobbered(method).message


ALIASES: dict[str, Callable[[Method, int, int], None]] = {
    "an unknown operator": lambda method, alias, data: method.kernel("my::update", alias, data),
    "an in-place operator": lambda method, alias, data: method.update(alias, data),
    "an unknown delegate": lambda method, alias, data: method.calls.append(m.DelegateCall(0, (data, alias))),
}


@pytest.mark.parametrize("name", ALIASES)
def test_what_changes_an_alias_changes_the_whole(name: str) -> None:
    """It may write only some of the bytes; no instruction has overwritten the whole."""
    method = Method()
    data = method.input(32)
    whole = method.op(data)
    alias = method.alias(whole, 16)
    method.delegates.append(m.BackendDelegate("MyBackend", m.BackendDelegateDataReference(m.DataLocation.INLINE, 0)))
    ALIASES[name](method, alias, data)
    method.outputs = [whole]
    assert (whole, alias) in spans(method)


def test_an_alias_that_is_replaced_by_a_kernel_is_refused() -> None:
    """All of it is overwritten: the planner took the bytes for free."""
    method = Method()
    data = method.input(32)
    whole = method.op(data)
    method.copy(method.alias(whole, 16), data)
    method.outputs = [whole]
    assert "reads value 1" in clobbered(method).message


def test_a_dynamic_tensor_over_state_writes_the_rows_that_it_has() -> None:
    """All of the state is read; the rows that the dynamic tensor did not write are from the previous call."""
    method = Method()
    rows, given = method.input(32, dynamic=True), method.input(32)
    state = method.tensor(32)
    part = method.alias(state, 32)
    method.values[part] = replace(method.at(part), shape_dynamism=m.TensorShapeDynamism.DYNAMIC_BOUND)
    method.kernel("aten::relu.out", rows, part, part)
    method.outputs = [method.op(state, given)]
    found = method_memory(method.plan(), {})
    assert found.of[state] == found.of[part]
    assert found.storages[found.of[state]].persistent


@pytest.mark.parametrize("external", [False, True], ids=["in the file", "in another file"])
def test_an_initial_value_matters_whether_anybody_reads_it_or_not(external: bool) -> None:
    """The runtime writes it, and another method may use the bytes."""
    method = Method()
    location = m.TensorDataLocation.EXTERNAL if external else m.TensorDataLocation.SEGMENT
    info = m.ExtraTensorInfo(fully_qualified_name="cache", location=location)
    state = method.tensor(32, extra_tensor_info=info, data_buffer_idx=0 if external else 2)
    method.outputs = [method.op(method.input(32))]
    found = method_memory(method.plan(), {})
    assert found.storages[found.of[state]].persistent
