"""Places that a tensor is read from, and writes that its bytes may come from."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import pytest

from etdev.errors import ExitCode, LinkError
from etdev.program import model as m
from etdev.program.analysis import reaching as module
from etdev.program.analysis.contents import BEFORE
from etdev.program.analysis.reaching import Kind, Place, Reaching, reaching
from linker.programs import Method

CALLER = -1
"""Position of writes by the caller."""
Sources = dict[int, set[int | Literal["before"]]]
"""Value whose place it is → positions of the writes that its bytes may come from."""


def follow(method: Method) -> Reaching:
    return reaching(method.plan(), method.delegate_inputs)


def sources(method: Method, value: int, position: int | None = None) -> Sources:
    """Return the sources of a value at an instruction; without a position, at the end for the caller."""
    found = follow(method)
    at = len(found.flow.instructions) if position is None else position
    result: Sources = defaultdict(set)
    for use in found.uses:
        if (use.position, use.value) == (at, value):
            result[use.place] |= {
                "before" if number == BEFORE else found.writes[number - 1].position for number in use.writes
            }
    return dict(result)


def copied(method: Method, to: int, of: int) -> list[int]:
    """Build a side of a branch that writes a tensor and returns nothing."""
    method.copy(to, of)
    return []


# Straight lines


def test_an_input_is_written_by_the_caller() -> None:
    method = Method()
    one = method.input(32)
    method.op(one)
    assert sources(method, one, 0) == {one: {CALLER}}


def test_a_result_is_read_where_it_was_written() -> None:
    method = Method()
    one = method.op(method.input(32))
    two = method.op(one)
    method.outputs = [two]
    assert sources(method, one, 1) == {one: {0}}
    assert sources(method, two) == {two: {1}}


def test_the_last_write_counts() -> None:
    method = Method()
    one = method.op(method.input(32))
    method.copy(one, method.op(one))
    method.outputs = [one]
    assert sources(method, one, 1) == {one: {0}}
    assert sources(method, one) == {one: {2}}


def test_what_changes_some_bytes_leaves_the_others() -> None:
    method = Method()
    one = method.op(method.input(32))
    method.update(one, method.inputs[0])
    method.outputs = [one]
    assert sources(method, one, 1) == {one: {0}}
    assert sources(method, one) == {one: {0, 1}}


def test_an_unknown_operator_may_have_changed_what_it_got() -> None:
    method = Method()
    one, two = method.op(method.input(32)), method.op(0)
    method.kernel("my::update", one, two)
    method.outputs = [one, two]
    assert sources(method, one) == {one: {0, 2}}
    assert sources(method, two) == {two: {1, 2}}


def test_an_alias_is_read_from_what_was_written_to_its_bytes() -> None:
    method = Method()
    whole = method.op(method.input(64), nbytes=64)
    half = method.alias(whole, 32, 32)
    method.copy(half, method.op(0))
    method.outputs = [whole, half, method.alias(whole, 32)]
    assert sources(method, whole) == {whole: {0, 2}}
    assert sources(method, half) == {half: {2}}
    assert sources(method, method.outputs[2]) == {method.outputs[2]: {0}}


def test_what_nobody_wrote_was_there_before() -> None:
    method = Method()
    state, half = method.tensor(32), 0
    half = method.alias(state, 16)
    method.copy(half, method.input(16))
    method.outputs = [state]
    assert sources(method, state) == {state: {"before", 0}}


def test_constants_and_what_the_caller_owns_have_no_place() -> None:
    method = Method()
    constant, owned = method.constant(32), method.input(32, planned=False)
    method.op(constant, owned)
    found = follow(method)
    assert {constant, owned}.isdisjoint(found.places)
    assert found.uses == ()


# Branches


def test_a_branch_joins_what_its_sides_wrote() -> None:
    method = Method()
    flag, one = method.value(m.Bool(True)), method.tensor(32)
    method.inputs = [flag]
    data = method.input(32)
    method.cond(flag, lambda: copied(method, one, data), lambda: copied(method, one, method.op(data)))
    method.outputs = [one]
    assert sources(method, one) == {one: {1, 4}}


def test_one_side_only_leaves_what_was_there() -> None:
    method = Method()
    data = method.input(32)
    one = method.op(data)
    method.cond(data, lambda: copied(method, one, data), list)
    method.outputs = [one]
    assert sources(method, one) == {one: {0, 2}}


def test_a_merged_value_lies_where_each_side_left_it() -> None:
    method = Method()
    data = method.input(32)
    merged, one, other = method.branches(data)
    method.outputs = [merged]
    assert sources(method, merged) == {one: {1}, other: {4}}
    assert follow(method).references == {merged}


def test_a_merged_value_holds_what_it_did_on_the_path_on_which_it_is_that() -> None:
    """The side that does not take ``kept`` writes over it; on that path, the merged value is another tensor."""
    method = Method()
    data = method.input(32)
    kept = method.op(data)

    def other() -> list[int]:
        found = method.op(data)
        method.copy(kept, found)
        return [found]

    (merged,) = method.cond(data, lambda: [kept], other)
    method.outputs = [merged, kept]
    assert sources(method, merged) == {kept: {0}, method.calls[4].args[1]: {4}}
    assert sources(method, kept) == {kept: {0, 5}}


def test_a_write_over_what_a_merged_value_may_be_is_seen_through_it() -> None:
    method = Method()
    data = method.input(32)
    one, two = method.op(data), method.op(data)
    (merged,) = method.cond(data, lambda: [one], lambda: [two])
    method.copy(one, data)
    method.outputs = [merged]
    assert sources(method, merged) == {one: {6}, two: {1}}


def test_a_write_through_a_merged_value_may_be_to_either() -> None:
    method = Method()
    data = method.input(32)
    one, two = method.op(data), method.op(data)
    (merged,) = method.cond(data, lambda: [one], lambda: [two])
    method.copy(merged, data)
    method.outputs = [merged, one, two]
    assert sources(method, one) == {one: {0, 6}}
    assert sources(method, two) == {two: {1, 6}}
    written = {(write.place, write.kind, write.certain) for write in follow(method).writes if write.position == 6}
    assert written == {(one, Kind.ALL, False), (two, Kind.ALL, False)}


def test_nested_branches_merge_all_that_their_sides_left() -> None:
    method = Method()
    data = method.input(32)
    one, two, three = (method.op(data) for _ in range(3))
    (merged,) = method.cond(data, lambda: method.cond(data, lambda: [one], lambda: [two]), lambda: [three])
    method.outputs = [merged]
    assert sources(method, merged) == {one: {0}, two: {1}, three: {2}}


def test_one_side_may_leave_the_memory_of_the_caller() -> None:
    method = Method()
    data = method.input(32)
    constant, one = method.constant(32), method.op(data)
    (merged,) = method.cond(data, lambda: [constant], lambda: [one])
    method.outputs = [merged]
    assert sources(method, merged) == {one: {0}}


def test_a_value_is_what_the_last_move_made_it() -> None:
    method = Method()
    one, two, name = method.input(32), method.input(32), method.tensor(32)
    method.move(one, name)
    method.move(two, name)
    method.outputs = [name]
    assert sources(method, name) == {two: {CALLER}}


def test_a_move_takes_the_tensor_and_not_the_value() -> None:
    """Afterwards the origin becomes another tensor; the name keeps its tensor."""
    method = Method()
    one, two, origin, name = method.input(32), method.input(32), method.tensor(32), method.tensor(32)
    method.move(one, origin)
    method.move(origin, name)
    method.move(two, origin)
    method.outputs = [name, origin]
    assert sources(method, name) == {one: {CALLER}}
    assert sources(method, origin) == {two: {CALLER}}


# Loops


def test_a_loop_finds_what_its_last_round_left() -> None:
    method = Method()
    carry = method.op(method.input(32))
    with method.loop(3):
        new = method.op(carry)
        method.copy(carry, new)
    method.outputs = [carry]
    assert sources(method, carry, 1) == {carry: {0, 2}}
    assert sources(method, carry) == {carry: {2}}


def test_what_a_loop_moves_is_another_tensor_from_its_second_round_on() -> None:
    method = Method()
    first, carry = method.input(32), method.tensor(32)
    method.move(first, carry)
    new = method.op(carry)
    method.move(new, carry)
    method.repeat_while_false(first, 1)
    method.outputs = [carry]
    assert sources(method, carry, 1) == {first: {CALLER}, new: {1}}
    assert sources(method, carry) == {new: {1}}


def test_what_a_call_leaves_set_the_next_one_finds() -> None:
    """A value that is moved at the end and read at the start refers, in the second call, to what the first one left."""
    method = Method()
    data, name = method.input(32), method.tensor(32)
    one = method.op(data)
    seen = method.op(name)
    method.move(one, name)
    method.outputs = [seen]
    assert sources(method, name, 1) == {one: {0}, name: {"before"}}


def test_a_value_that_is_set_before_it_is_read_brings_nothing_from_the_last_call() -> None:
    method = Method()
    data, name = method.input(32), method.tensor(32)
    method.move(method.op(data), name)
    method.op(name)
    method.move(data, name)
    assert sources(method, name, 2) == {2: {0}}


# Views


def test_a_view_lies_where_it_points() -> None:
    method = Method()
    one = method.op(method.input(32))
    view = method.et_view(one)
    method.op(view)
    assert sources(method, view, 2) == {one: {0}}
    assert follow(method).references == {view}


def test_a_view_sees_what_is_written_later() -> None:
    method = Method()
    data = method.input(32)
    one = method.op(data)
    view = method.et_view(one)
    method.copy(one, data)
    method.outputs = [view]
    assert sources(method, view) == {one: {2}}


def test_a_view_of_a_merged_value_lies_in_either() -> None:
    method = Method()
    data = method.input(32)
    one, two = method.op(data), method.op(data)
    (merged,) = method.cond(data, lambda: [one], lambda: [two])
    method.outputs = [method.et_view(merged)]
    assert sources(method, method.outputs[0]) == {one: {0}, two: {1}}


def test_a_view_of_a_view_lies_where_the_first_one_points() -> None:
    method = Method()
    one = method.op(method.input(32))
    method.outputs = [method.et_view(method.et_view(one))]
    assert sources(method, method.outputs[0]) == {one: {0}}


def test_a_view_that_is_set_through_another_value_moves_both() -> None:
    """``name`` refers to the tensor of ``view``, whose data is set afterwards."""
    method = Method()
    one, two = method.input(32), method.input(32)
    view, name = method.like(one, planned=False), method.tensor(32)
    method.move(view, name)
    method.et_view(one, name)
    method.outputs = [view, name]
    assert sources(method, view) == sources(method, name) == {one: {CALLER}}
    assert follow(method).references == {view, name}
    assert two not in follow(method).references


def test_a_move_is_known_in_a_later_block_that_sets_a_view_through_it() -> None:
    """No instruction reads ``name``, but it determines whose data is set."""
    method = Method()
    one = method.input(32)
    view, name = method.like(one, planned=False), method.tensor(32)
    method.move(view, name)
    method.calls.append(m.JumpFalseCall(one, 2))
    method.et_view(one, name)
    method.outputs = [view]
    assert sources(method, view) == {one: {CALLER}}


def test_a_view_set_through_one_of_two_tensors_may_have_moved_either() -> None:
    method = Method()
    data = method.input(32)
    one, two = method.op(data), method.op(data)
    (merged,) = method.cond(data, lambda: [one], lambda: [two])
    method.et_view(data, merged)
    method.outputs = [one, two, merged]
    for value in (one, two, merged):
        assert set(sources(method, value)) >= {data}
    assert set(sources(method, one)) == {one, data}
    assert set(sources(method, two)) == {two, data}


# Filling


def rows(method: Method) -> tuple[int, int]:
    """Build a loop that fills a tensor row by row; return the tensor, and the position of the filling instruction."""
    filled = method.tensor(64, dynamic=True)
    data = method.input(16)
    with method.loop(4) as counter:
        row = method.op(data, nbytes=16)
        method.kernel("executorch_prim::et_copy_index.tensor", filled, row, counter)
    return filled, len(method.calls) - 5


def test_rows_that_are_filled_in_are_all_that_a_tensor_holds() -> None:
    """The content before the loop is don't-care."""
    method = Method()
    filled, at = rows(method)
    method.outputs = [filled]
    assert sources(method, filled) == {filled: {at}}
    assert {write.kind for write in follow(method).writes if write.place == filled} == {Kind.FILL}


def test_what_others_left_where_rows_are_filled_in_is_forgotten() -> None:
    method = Method()
    other = method.op(method.input(64), nbytes=64)
    filled, at = rows(method)
    method.values[filled] = m.Tensor(
        m.ScalarType.BYTE,
        (4, 16),
        (0, 1),
        m.TensorShapeDynamism.DYNAMIC_BOUND,
        allocation_info=method.at(other).allocation_info,
    )
    method.outputs = [filled]
    assert sources(method, filled) == {filled: {at}}


@pytest.mark.parametrize("before", [True, False])
def test_an_unknown_operator_that_changes_what_is_filled_is_kept(before: bool) -> None:
    """Before the loop it discards nothing that it found; inside, it is one of the filling instructions."""
    method = Method()
    filled = method.tensor(64, dynamic=True)
    data = method.input(16)
    if before:
        method.kernel("my::update", filled, data)
    with method.loop(4) as counter:
        row = method.op(data, nbytes=16)
        method.kernel("executorch_prim::et_copy_index.tensor", filled, row, counter)
        if not before:
            method.kernel("my::update", filled, data)
    method.outputs = [filled]
    found = {"et_copy_index": 2 if before else 1, "my::update": 0 if before else 2}
    assert sources(method, filled) == {filled: set(found.values())}


def test_empty_makes_a_tensor_that_holds_nothing_of_before() -> None:
    method = Method()
    out = method.tensor(32)
    method.kernel("aten::empty.out", method.value(m.Null()), out, out)
    method.outputs = [out]
    assert sources(method, out) == {out: {0}}


# Places


def test_places_are_as_large_as_the_largest_sizes() -> None:
    method = Method()
    static, dynamic = method.input(32), method.input(64, dynamic=True)
    unbounded = method.input(32)
    method.values[unbounded] = m.Tensor(
        m.ScalarType.BYTE,
        (4, 8),
        (0, 1),
        m.TensorShapeDynamism.DYNAMIC_UNBOUND,
        allocation_info=m.AllocationDetails(1, 0),
    )
    empty, unused = method.input(0), method.tensor(16)
    places = follow(method).places
    starts = {value: method.at(value).allocation_info.memory_offset for value in (static, dynamic)}
    assert places == {
        static: Place(1, starts[static], starts[static] + 32),
        dynamic: Place(1, starts[dynamic], starts[dynamic] + 64),
    }
    assert {unbounded, empty, unused}.isdisjoint(places)
    assert unused in reaching(method.plan(), {}, (unused,)).places


def test_a_tensor_in_a_list_that_somebody_uses_has_a_place() -> None:
    method = Method()
    parts = [method.input(16), method.tensor(16)]
    method.cat(*parts)
    assert set(parts) <= set(follow(method).places)


# The whole method


def test_a_method_that_jumps_to_its_end_ends_there() -> None:
    method = Method()
    data = method.input(32)
    one = method.op(data)
    method.calls.append(m.JumpFalseCall(data, 3))
    method.copy(one, data)
    method.outputs = [one]
    assert sources(method, one) == {one: {0, 2}}


def test_a_method_without_instructions_gives_back_what_it_gets() -> None:
    method = Method()
    method.outputs = [method.input(32)]
    assert sources(method, method.outputs[0]) == {method.outputs[0]: {CALLER}}


def test_a_method_that_never_ends_is_followed_too() -> None:
    method = Method()
    one = method.op(method.input(32))
    method.copy(one, method.op(one))
    method.calls.append(m.JumpFalseCall(method.value(m.Bool(False)), 1))
    method.outputs = [one]
    assert sources(method, one, 1) == {one: {0, 2}}


def test_what_nothing_reaches_writes_nothing() -> None:
    method = Method()
    data = method.input(32)
    one = method.op(data)
    method.calls.append(m.JumpFalseCall(method.value(m.Bool(False)), 3))
    method.copy(one, data)
    method.outputs = [one]
    assert sources(method, one) == {one: {0}}


def test_control_flow_out_of_all_proportion_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_STEPS", 20)
    method = Method("decode")
    data = method.input(32)
    for _ in range(5):
        method.cond(data, lambda: [method.op(data)], lambda: [method.op(data)])
    with pytest.raises(LinkError) as refused:
        follow(method)
    assert refused.value.exit_code is ExitCode.BUILD_FAILED
    assert refused.value.message == (
        "the control flow of method 'decode' is too large to analyze: 15 blocks, 16 places in memory"
    )
    assert refused.value.hint == "split the method into smaller methods, or ship the file as it is, without a relink"
