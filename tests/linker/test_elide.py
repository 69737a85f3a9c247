"""Views: which are removed and how, which stay and why, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from etdev.decisions import Elision
from etdev.linker import LinkOptions, link
from etdev.linker.edit import renumbered, with_instructions
from etdev.linker.elide.views import elide_views
from etdev.linker.start import start
from etdev.linker.work import Decision
from etdev.program import model as m
from etdev.program.analysis.effects import ET_VIEW
from etdev.program.check import check_structure
from linker.oracle import Call, Machine
from linker.programs import Method, program

CALLS = (Call(seed=1, decisions=(True,)), Call(seed=2, decisions=(False,)), Call(seed=3, decisions=(True, False)))
"""Calls on both sides of a branch in order, with the state that the first call leaves for the next."""
DYNAMIC = m.TensorShapeDynamism.DYNAMIC_BOUND


@dataclass(frozen=True)
class Elided:
    """Method without its views."""

    plan: m.ExecutionPlan
    moved: dict[int, int]
    decisions: tuple[Decision, ...]

    @property
    def actions(self) -> list[str]:
        return [item.action for item in self.decisions]

    @property
    def reasons(self) -> list[str]:
        return [item.reason for item in self.decisions]

    @property
    def operators(self) -> list[str]:
        """Return the name of each instruction's operator, or of its kind."""
        return [
            self.plan.operators[call.op_index].name if isinstance(call, m.KernelCall) else type(call).__name__
            for call in self.plan.chains[0].instructions
        ]

    def place(self, value: int) -> m.AllocationDetails | None:
        tensor = self.plan.values[value]
        assert isinstance(tensor, m.Tensor)
        return tensor.allocation_info


def without_views(method: Method, *, merged: bool = True) -> Elided:
    """Run the pass alone."""
    found, options = program(method), LinkOptions(merged_views=merged)
    work = start(found.program, [0], options, found.sidecar)
    done = elide_views(work.methods[0], work, options)
    assert done.moved is not None
    return Elided(done.method.plan, dict(done.moved), tuple(done.decisions))


def elide(method: Method, *, merged: bool = True) -> Elided:
    """Remove the views, and check that call after call computes the same."""
    found = program(method)
    done = without_views(method, merged=merged)
    changed = replace(found.program, execution_plan=(done.plan,))
    check_structure(changed)
    assert Machine(changed, inputs=found.inputs).run(*CALLS) == Machine(found.program, inputs=found.inputs).run(*CALLS)
    return done


def branch(method: Method, one: int, other: int) -> int:
    """Return a value that is one of two."""
    (merged,) = method.cond(method.inputs[0], lambda: [one], lambda: [other])
    return merged


# The four ways


def test_a_view_of_a_temporary_becomes_an_alias() -> None:
    method = Method()
    one = method.op(method.input(32))
    view = method.view(one)
    method.outputs = [method.op(view)]
    done = elide(method)
    assert done.decisions == (Elision(1, "aten::view_copy.out", "alias", 32),)
    assert done.operators == ["aten::mm", "aten::mm"]
    assert done.place(view) == method.at(one).allocation_info


def test_a_view_of_a_constant_becomes_a_constant() -> None:
    method = Method()
    weight = method.constant(32, 3)
    view = method.view(weight)
    method.outputs = [method.op(view)]
    done = elide(method)
    assert done.actions == ["constant"]
    assert done.operators == ["aten::mm"]
    assert done.plan.values[view] == replace(method.at(view), data_buffer_idx=3, allocation_info=None)


def test_a_view_of_what_the_caller_owns_is_set_at_run_time() -> None:
    method = Method()
    given = method.input(32, planned=False)
    view = method.view(given)
    method.outputs = [method.op(view)]
    done = elide(method)
    assert done.actions == ["view"]
    call = done.plan.chains[0].instructions[0]
    assert isinstance(call, m.KernelCall)
    assert done.plan.operators[call.op_index] == m.Operator(ET_VIEW, "default")
    assert call.args == (given, method.calls[0].args[1], view)


def test_a_view_of_a_dynamic_size_is_set_at_run_time() -> None:
    method = Method()
    one = method.op(method.input(32, dynamic=True), dynamic=True)
    method.outputs = [method.op(method.view(one), dynamic=True)]
    done = elide(method)
    assert done.actions == ["view"]
    assert done.operators == ["aten::mm", ET_VIEW, "aten::mm"]


def rows_of_a_loop(method: Method, nbytes: int = 64, times: int = 4) -> int:
    """Add a loop that fills rows of a dynamic tensor, as ``map`` does."""
    row = method.input(nbytes // 4)
    rows = method.tensor(nbytes, dynamic=True)
    with method.loop(times) as counter:
        method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(row, nbytes=nbytes // 4), counter)
    return rows


@pytest.mark.parametrize("name", ["aten::alias_copy.out", "aten::view_copy.out"])
def test_a_copy_that_fixes_the_sizes_of_its_input_becomes_a_view_of_these_sizes(name: str) -> None:
    method = Method()
    copy = method.view(rows_of_a_loop(method), name)
    method.values[copy] = replace(method.at(copy), shape_dynamism=m.TensorShapeDynamism.STATIC)
    method.outputs = [method.op(copy, nbytes=64)]
    done = elide(method)
    assert done.actions == ["view"]
    kernels = [call for call in done.plan.chains[0].instructions if isinstance(call, m.KernelCall)]
    (view,) = [call for call in kernels if call.args[-1] == copy]
    sizes = done.plan.values[view.args[1]]
    assert isinstance(sizes, m.IntList)
    assert [done.plan.values[item] for item in sizes.items] == [m.Int(4), m.Int(16)]


def test_a_copy_of_the_same_shape_is_replaced_by_what_it_copies() -> None:
    method = Method()
    one = method.op(method.input(32, dynamic=True), dynamic=True)
    copy = method.view(one, "aten::alias_copy.out")
    last = method.op(copy, dynamic=True)
    method.outputs = [copy, last]
    done = elide(method)
    assert done.actions == ["same value"]
    assert done.plan.outputs == (one, last)
    assert done.plan.chains[0].instructions[1].args[0] == one


@pytest.mark.parametrize("name", ["alias_copy", "detach_copy", "unsqueeze_copy"])
def test_each_of_the_copies_becomes_an_alias_where_it_can(name: str) -> None:
    method = Method()
    one = method.op(method.input(32))
    method.outputs = [method.op(method.view(one, f"aten::{name}.out"))]
    assert elide(method).actions == ["alias"]


@pytest.mark.parametrize("overload", ["dim_out", "dims_out"])
def test_a_squeeze_of_what_the_caller_owns_is_told_its_sizes(overload: str) -> None:
    method = Method()
    given = method.input(32, planned=False)
    out = method.tensor(32)
    method.kernel(f"aten::squeeze_copy.{overload}", given, method.value(m.Int(0)), out, out)
    method.outputs = [method.op(out)]
    done = elide(method)
    assert done.actions == ["view"]
    sizes = done.plan.values[done.plan.chains[0].instructions[0].args[1]]
    assert isinstance(sizes, m.IntList)
    assert [done.plan.values[item] for item in sizes.items] == [m.Int(4), m.Int(8)]


# Sources of views


def test_a_chain_of_views_becomes_one_place() -> None:
    method = Method()
    one = method.op(method.input(32))
    views = [method.view(one)]
    views += [method.view(views[-1], name) for name in ("aten::alias_copy.out", "aten::view_copy.out")]
    method.outputs = [method.op(views[-1])]
    done = elide(method)
    assert done.actions == ["alias"] * 3
    assert {done.place(view) for view in views} == {method.at(one).allocation_info}
    assert done.operators == ["aten::mm"] * 2


def test_a_chain_of_dynamic_views_is_set_at_run_time() -> None:
    method = Method()
    given = method.input(32, dynamic=True)
    one = method.view(given)
    two = method.view(one)
    method.outputs = [method.view(two), method.op(two, dynamic=True)]
    done = elide(method)
    assert done.actions == ["view"] * 3
    assert [call.args[0] for call in done.plan.chains[0].instructions[:3]] == [given, one, two]


def test_views_of_a_view_of_a_constant_are_constants() -> None:
    method = Method()
    view = method.view(method.view(method.constant(32)))
    method.outputs = [method.op(view)]
    assert elide(method).actions == ["constant", "constant"]


def test_a_view_of_an_input_lies_in_it() -> None:
    method = Method()
    given = method.input(32)
    view = method.view(given)
    method.outputs = [method.op(view)]
    done = elide(method)
    assert done.place(view) == method.at(given).allocation_info


def test_an_input_may_be_given_back_in_another_shape() -> None:
    method = Method()
    method.outputs = [method.view(method.input(32))]
    assert elide(method).actions == ["alias"]


def test_an_output_and_a_view_of_it_are_two_outputs_in_one_place() -> None:
    method = Method()
    one = method.op(method.input(32))
    method.outputs = [one, method.view(one)]
    done = elide(method)
    assert done.actions == ["alias"]
    assert done.plan.outputs == tuple(method.outputs)


def test_an_input_that_is_given_back_is_another_tensor_in_the_same_place() -> None:
    """The caller tells inputs and outputs apart by tensor."""
    method = Method()
    given = method.input(32, planned=False)
    copy = method.view(given, "aten::alias_copy.out")
    method.outputs = [copy]
    done = elide(method)
    assert done.actions == ["view"]
    assert done.plan.outputs == (copy,)


def test_a_view_of_state_lies_in_the_state() -> None:
    method = Method()
    state = method.buffer(32, "cache")
    view = method.view(state)
    method.outputs = [method.op(view)]
    method.update(state, method.outputs[0])
    done = elide(method)
    assert done.actions == ["alias"]
    assert done.place(view) == method.at(state).allocation_info


def test_a_view_of_a_merged_value_is_set_at_run_time() -> None:
    method = Method()
    data = method.input(32)
    merged = branch(method, method.op(data), method.op(data))
    method.outputs = [method.op(method.view(merged))]
    assert elide(method).actions == ["view"]


def test_a_view_of_a_view_of_a_merged_value_is_too() -> None:
    method = Method()
    data = method.input(32)
    merged = branch(method, method.op(data), method.op(data))
    view = method.view(method.view(merged))
    method.outputs = [method.op(view)]
    assert elide(method).actions == ["view", "view"]


def test_views_inside_a_branch_that_are_its_result_become_aliases() -> None:
    method = Method()
    data = method.input(32)
    method.outputs = method.cond(data, lambda: [method.view(method.op(data))], lambda: [method.view(method.op(data))])
    assert elide(method).actions == ["alias", "alias"]


def test_views_inside_a_loop_become_aliases() -> None:
    method = Method()
    data = method.input(32)
    carry = method.tensor(32)
    method.copy(carry, data)
    with method.loop(3):
        new = method.op(method.view(carry))
        method.copy(carry, method.view(new))
    method.outputs = [carry]
    assert elide(method).actions == ["alias", "alias"]


def test_a_view_inside_a_branch_of_what_is_written_on_the_other_side_becomes_an_alias() -> None:
    """The sides never run in one call, but in the file the write comes after the view."""
    method = Method()
    data = method.input(32)
    one = method.op(data)

    def write() -> list[int]:
        method.copy(one, data)
        return [method.op(one)]

    method.outputs = method.cond(data, lambda: [method.op(method.view(one))], write)
    assert elide(method).actions == ["alias"]


def test_a_view_of_data_in_another_file_is_set_at_run_time() -> None:
    """The address is known when that file is loaded. A constant is not an output, so another tensor is."""
    method = Method()
    extra = m.ExtraTensorInfo(fully_qualified_name="weight", location=m.TensorDataLocation.EXTERNAL)
    weight = method.tensor(32, planned=False, extra_tensor_info=extra)
    view, copy, output = (
        method.view(weight, f"aten::{name}.out") for name in ("view_copy", "alias_copy", "alias_copy")
    )
    method.outputs = [method.op(view, copy), output]
    assert elide(method).actions == ["view", "same value", "view"]


# Aliases of the source of a copy


def test_the_aliases_of_a_copy_follow_it() -> None:
    method = Method()
    one = method.op(method.input(64), nbytes=64)
    view = method.view(one)
    half = method.alias(view, 32, 32)
    whole = method.alias(view, 64)
    method.outputs = [method.op(half), method.op(whole)]
    done = elide(method)
    assert done.actions == ["alias"]
    assert done.place(whole) == method.at(one).allocation_info
    assert done.place(half) == m.AllocationDetails(1, method.at(one).allocation_info.memory_offset + 32)


def test_they_follow_it_through_a_chain() -> None:
    method = Method()
    one = method.op(method.input(64), nbytes=64)
    first = method.view(one)
    half = method.alias(first, 32, 32)
    second = method.view(half)
    quarter = method.alias(second, 16, 16)
    method.outputs = [method.op(quarter)]
    done = elide(method)
    assert done.actions == ["alias", "alias"]
    assert done.place(quarter) == m.AllocationDetails(1, method.at(one).allocation_info.memory_offset + 48)


def test_a_copy_in_a_foreign_plan_takes_what_lies_over_its_output_along() -> None:
    """A planner places a static view of the squeezed tensor over it, without any instruction."""
    method = Method()
    one = method.op(method.input(64), nbytes=64)
    squeezed = method.view(one, "aten::squeeze_copy.dims_out")
    static = method.alias(squeezed, 64)
    method.outputs = [method.op(static, one)]
    found = program(method)
    linked = link(found.program)
    assert [item.action for item in linked.methods[0].elisions] == ["alias"]
    assert Machine(linked.program).run(*CALLS) == Machine(found.program).run(*CALLS)


# Views that stay, and the reasons


def nothing_to_copy(method: Method) -> None:
    method.view(method.input(0))


def not_planned(method: Method) -> None:
    data = method.input(32)
    out = method.like(data, planned=False)
    method.kernel("aten::alias_copy.out", data, out, out)
    method.outputs = [out]


def written_elsewhere(method: Method) -> None:
    out = method.view(method.input(32))
    method.update(out, 0)
    method.outputs = [out]


def written_on_the_other_side(method: Method) -> None:
    data = method.input(32)
    out = method.tensor(32)

    def side(name: str) -> list[int]:
        method.kernel(name, data, out, out)
        return []

    method.cond(data, lambda: side("aten::alias_copy.out"), lambda: side("aten::relu.out"))
    method.outputs = [out]


def alias_is_written(method: Method) -> None:
    out = method.view(method.input(32))
    method.update(method.alias(out, 16), 0)
    method.outputs = [out]


def output_is_state(method: Method) -> None:
    state = method.buffer(32, "cache")
    method.kernel("aten::alias_copy.out", method.input(32), state, state)


def read_before_it_is_written(method: Method) -> None:
    out = method.tensor(32)
    method.outputs = [method.op(out)]
    method.kernel("aten::alias_copy.out", method.input(32), out, out)


def pointed_elsewhere(method: Method) -> None:
    """Point a view elsewhere through another value; the next call finds it so before it is set again."""
    given, name = method.input(32, planned=False), method.tensor(32)
    out = method.view(method.op(method.input(32)))
    seen = method.op(out)
    method.move(out, name)
    method.et_view(given, name)
    method.outputs = [seen, method.op(out)]


def backwards(method: Method) -> None:
    """Place a view of ``out`` before the writer of ``out``, but run it later."""
    always = method.value(m.Bool(False))
    source = method.op(method.input(32))
    out = method.tensor(32)
    method.calls.append(m.JumpFalseCall(always, 4))
    view = method.view(out)
    method.calls.append(m.JumpFalseCall(always, 6))
    method.kernel("aten::alias_copy.out", source, out, out)
    method.calls.append(m.JumpFalseCall(always, 2))
    method.update(source, 0)
    method.outputs = [method.op(view), source]


def carried(method: Method, *, first: bool) -> None:
    """View, in a loop, the result of the previous iteration; in the first one, an input."""
    data, carry = method.input(32), method.tensor(32)
    method.move(data, carry)
    start = len(method.calls)
    if not first:
        method.op(data)
    out = method.view(carry)
    method.move(out, carry)
    method.repeat_while_false(data, start)
    method.outputs = [carry]


def rewritten(method: Method) -> None:
    one = method.op(method.input(32))
    out = method.view(one)
    method.update(one, 0)
    method.outputs = [out]


def rewritten_on_one_way(method: Method) -> None:
    data = method.input(32)
    one = method.op(data)
    out = method.view(one)

    def write() -> list[int]:
        method.update(one, data)
        return []

    method.cond(data, write, list)
    method.outputs = [out]


def rewritten_in_the_round(method: Method) -> None:
    one = method.op(method.input(32))
    with method.loop(3):
        out = method.view(one)
        method.update(one, 0)
        method.op(out)
    method.outputs = [one]


def state_is_updated(method: Method) -> None:
    state = method.buffer(32, "cache")
    out = method.view(state)
    method.update(state, method.input(32))
    method.outputs = [out]


def caller_memory_is_written(method: Method) -> None:
    given = method.input(32, planned=False)
    out = method.view(given)
    method.kernel("my::update", given, method.constant(32))
    method.outputs = [out]


def caller_memory_is_written_through_a_view(method: Method) -> None:
    given, other = method.input(32, planned=False), method.input(32)
    view = method.et_view(given)
    copy = method.view(given)
    method.copy(view, other)
    method.outputs = [method.op(copy, other)]


def caller_memory_that_a_branch_gives_is_written(method: Method) -> None:
    given, other = method.input(32, planned=False), method.input(32)
    copy = method.view(branch(method, given, method.op(other)))
    method.copy(given, other)
    method.outputs = [method.op(copy, other)]


def freed(method: Method) -> None:
    """Free a value, which no other value may replace."""
    whole = method.op(method.input(32, dynamic=True), dynamic=True)
    copy = method.view(whole, "aten::alias_copy.out")
    method.calls.append(m.FreeCall(whole))
    method.outputs = [method.op(copy, dynamic=True)]


def resized_after(method: Method) -> None:
    """Ask for the size of a copy after its source was resized; the copy has the old size."""
    row, none, one = method.input(16), method.value(m.Int(0)), method.value(m.Int(1))
    rows, size = method.tensor(64, dynamic=True), method.value(m.Int(0))
    method.kernel("executorch_prim::et_copy_index.tensor", rows, row, none)
    copy = method.view(rows, "aten::alias_copy.out")
    first = method.op(copy)
    method.kernel("executorch_prim::et_copy_index.tensor", rows, row, one)
    method.kernel("aten::sym_size.int", copy, none, size)
    method.outputs = [method.op(rows, size), first]


def one_of_two_is_written(method: Method) -> None:
    data = method.input(32)
    one, other = method.op(data), method.op(data)
    out = method.view(branch(method, one, other))
    method.update(one, data)
    method.outputs = [out]


def merged_value_is_set_again(method: Method) -> None:
    """Set a merged value again: the bytes stay, but the value refers to another tensor."""
    data = method.input(32)
    one, other = method.op(data), method.op(data)
    merged = branch(method, one, other)
    out = method.view(merged)
    method.move(data, merged)
    method.outputs = [out, merged]


def view_in_another_storage_is_rewritten(method: Method) -> None:
    """Remove a view by an alias of ``one``, so that the result of the branch may be ``one``."""
    data = method.input(32)
    one, other = method.op(data), method.op(data)
    merged = branch(method, method.view(one), other)
    out = method.view(merged)
    method.update(one, data)
    method.outputs = [out]


def chain_is_rewritten(method: Method) -> None:
    """Chain views; the second one is in ``one`` through the first."""
    data = method.input(32)
    one = method.op(data)
    first = method.view(one)
    out = method.view(first)
    method.update(one, data)
    method.outputs = [out]


def other_type(method: Method) -> None:
    out = method.view(method.op(method.input(32)))
    method.values[out] = replace(method.at(out), scalar_type=m.ScalarType.CHAR)
    method.outputs = [out]


def other_order(method: Method) -> None:
    out = method.view(method.op(method.input(64), nbytes=64))
    method.values[out] = replace(method.at(out), dim_order=(1, 0))
    method.outputs = [out]


def other_size(method: Method) -> None:
    """Declare another size; a file may say anything."""
    out = method.view(method.op(method.input(32)))
    method.values[out] = replace(method.at(out), sizes=(4, 16))


def constant_as_output(method: Method) -> None:
    method.outputs = [method.view(method.constant(32))]


def sizes_at_run_time(method: Method) -> None:
    given = method.input(32, dynamic=True)
    out = method.view(given, "aten::unsqueeze_copy.out")
    method.outputs = [out]


def smaller_copy_of_fixed_sizes(method: Method) -> None:
    """Copy an input that may have more rows; whenever the copy succeeds, it has two of four."""
    rows, copy = rows_of_a_loop(method, 128, times=2), method.tensor(64)
    method.kernel("aten::view_copy.out", rows, method.numbers(4, 16), copy, copy)
    method.outputs = [method.op(copy, nbytes=64)]


def dynamic_input_given_back(method: Method) -> None:
    """Return a dynamic input. It cannot be the same tensor, and the sizes of another one are unknown."""
    method.outputs = [method.view(method.input(32, dynamic=True), "aten::alias_copy.out")]


def dynamic_value_given_back_twice(method: Method) -> None:
    one = method.op(method.input(32, dynamic=True), dynamic=True)
    method.outputs = [one, method.view(one, "aten::alias_copy.out")]


def copy_of_a_dynamic_view(method: Method) -> None:
    view = method.view(method.input(32, dynamic=True))
    method.outputs = [method.op(method.view(view, "aten::alias_copy.out"), dynamic=True)]


def constant_with_aliases(method: Method) -> None:
    out = method.view(method.constant(32))
    method.outputs = [method.op(method.alias(out, 16))]


def merged_with_aliases(method: Method) -> None:
    data = method.input(32)
    out = method.view(branch(method, method.op(data), method.op(data)))
    method.outputs = [method.op(method.alias(out, 16))]


def same_value_with_aliases(method: Method) -> None:
    one = method.input(32, planned=False)
    out = method.view(one, "aten::detach_copy.out")
    method.outputs = [method.op(method.alias(out, 16))]


REWRITTEN = "its input is written again while its output is in use"
ALIASES = "its output has aliases at fixed addresses"
KEPT: dict[str, tuple[Callable[[Method], None], str]] = {
    "no bytes": (nothing_to_copy, "its output is empty"),
    "the caller's output": (not_planned, "the memory of its output is not planned"),
    "written again": (written_elsewhere, "another instruction writes its output too"),
    "written on the other side of a branch": (written_on_the_other_side, "another instruction writes its output too"),
    "an alias is written": (alias_is_written, "other instructions write the bytes of its output"),
    "into state": (output_is_state, "its output is state"),
    "into what the next call reads": (read_before_it_is_written, "its output is state"),
    "pointed elsewhere later": (pointed_elsewhere, "its output is state"),
    "read at an earlier position": (backwards, "its output is used in the next iteration of a loop"),
    "carried from round to round": (
        lambda method: carried(method, first=False),
        "its output is used in the next iteration of a loop",
    ),
    "of what it was itself": (
        lambda method: carried(method, first=True),
        "its input may share bytes with its output",
    ),
    "rewritten": (rewritten, REWRITTEN),
    "rewritten on one way": (rewritten_on_one_way, REWRITTEN),
    "rewritten in the same round": (rewritten_in_the_round, REWRITTEN),
    "state that is updated": (state_is_updated, REWRITTEN),
    "the caller's memory is written": (caller_memory_is_written, REWRITTEN),
    "the caller's memory is written through a view": (caller_memory_is_written_through_a_view, REWRITTEN),
    "the caller's memory is written, a branch gives it": (caller_memory_that_a_branch_gives_is_written, REWRITTEN),
    "a dynamic tensor that is freed": (freed, "its sizes are known only at run time"),
    "another size afterwards": (resized_after, "its sizes are known only at run time"),
    "one of two is written": (one_of_two_is_written, REWRITTEN),
    "a merged value that is set again": (merged_value_is_set_again, REWRITTEN),
    "what a view in another storage shows": (view_in_another_storage_is_rewritten, REWRITTEN),
    "the end of a chain": (chain_is_rewritten, REWRITTEN),
    "another type": (other_type, "its output has another element type"),
    "another order": (other_order, "its dimensions are in another order in memory"),
    "another size": (other_size, "its output has another size"),
    "a constant as output": (constant_as_output, "its output is an output of the method, and its input is a constant"),
    "sizes at run time": (sizes_at_run_time, "its sizes are known only at run time"),
    "a smaller copy of fixed sizes": (smaller_copy_of_fixed_sizes, "its output has another size"),
    "a dynamic input as output": (dynamic_input_given_back, "its sizes are known only at run time"),
    "a dynamic output twice": (dynamic_value_given_back_twice, "its sizes are known only at run time"),
    "a copy of a dynamic view": (copy_of_a_dynamic_view, "its sizes are known only at run time"),
    "aliases of a view of a constant": (constant_with_aliases, ALIASES),
    "aliases of a view of a merged value": (merged_with_aliases, ALIASES),
    "aliases of a copy of what the caller owns": (same_value_with_aliases, ALIASES),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_copy_that_is_needed_stays_and_says_why(name: str) -> None:
    method = Method()
    build, reason = KEPT[name]
    build(method)
    last = elide(method).decisions[-1]
    assert (last.action, last.reason) == ("kept", reason)


@pytest.mark.parametrize("returned", [True, False], ids=["its output", "another result"])
def test_an_expansion_that_may_keep_the_sizes_says_why_it_stays(returned: bool) -> None:
    """It copies whole tensors in attention with a dynamic length, where ``@`` is exported as one.

    A call that returns another value than its output has no decision, because it is not such a copy.
    """
    method = Method()
    given = method.input(32, dynamic=True)
    out = method.like(given)
    last = out if returned else given
    method.kernel("aten::expand_copy.out", given, method.numbers(8), method.value(m.Bool(False)), last, out)
    method.outputs = [out]
    kept = Elision(0, "aten::expand_copy.out", "kept", 32, "its sizes are known only at run time")
    assert without_views(method).decisions == ((kept,) if returned else ())


def test_a_view_of_one_of_several_tensors_stays_if_it_is_not_wanted() -> None:
    method = Method()
    data = method.input(32)
    merged = branch(method, method.op(data), method.op(data))
    method.outputs = [method.op(method.view(merged)), method.op(method.view(data))]
    done = elide(method, merged=False)
    assert done.actions == ["kept", "alias"]
    assert done.reasons[0] == "all tensors that may be its input would be in use for longer"


# Conditions that do not matter


def test_an_input_may_be_written_after_the_last_use_of_its_view() -> None:
    method = Method()
    one = method.op(method.input(32))
    method.op(method.view(one))
    method.update(one, 0)
    method.outputs = [one]
    assert elide(method).actions == ["alias"]


def test_an_input_may_be_written_by_what_reads_the_view_last() -> None:
    """The kernel reads it at its start. ``copy_`` of a tensor to itself moves nothing."""
    method = Method()
    one = method.op(method.input(32))
    view = method.view(one)
    method.copy(one, method.op(view))
    method.outputs = [one]
    assert elide(method).actions == ["alias"]


def test_dimensions_in_another_order_stay_as_they_are_if_all_else_does() -> None:
    method = Method()
    one = method.op(method.input(64), nbytes=64)
    out = method.view(one, "aten::alias_copy.out")
    for value in (one, out):
        method.values[value] = replace(method.at(value), dim_order=(1, 0))
    method.outputs = [method.op(out)]
    assert elide(method).actions == ["alias"]


def test_an_input_that_stands_behind_its_copy_is_not_put_in_its_place() -> None:
    """A list refers to earlier values only, so a list with the copy could not have the input."""
    method = Method()
    out = method.tensor(32)
    one = method.input(32, planned=False)
    method.kernel("aten::alias_copy.out", one, out, out)
    method.outputs = [method.cat(out, nbytes=32)]
    assert elide(method).actions == ["view"]


MALFORMED: dict[str, Callable[[Method, int, int], tuple[int, ...]]] = {
    "sizes that are none": lambda method, of, out: (of, method.value(m.Int(1)), out, out),
    "too few arguments": lambda method, of, out: (of, out, out),
    "outputs that differ": lambda method, of, out: (of, method.value(m.IntList(())), method.tensor(32), out),
    "an input that is not a tensor": lambda method, of, out: (
        method.value(m.Null()),
        method.value(m.IntList(())),
        out,
        out,
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_call_without_the_arguments_of_a_view_is_left_alone(name: str) -> None:
    method = Method()
    one = method.op(method.input(32))
    out = method.tensor(32)
    method.kernel("aten::view_copy.out", *MALFORMED[name](method, one, out))
    plan = method.plan()
    assert without_views(method) == Elided(plan, {0: 0, 1: 1}, ())


# Positions


def test_jumps_lead_to_where_they_led() -> None:
    """A branch, both of whose sides begin and end with a view, and a loop that begins with one."""
    method = Method()
    data = method.input(32)

    def side() -> list[int]:
        return [method.view(method.op(method.view(data)))]

    (merged,) = method.cond(data, side, side)
    with method.loop(2):
        method.op(method.view(data))
    method.outputs = [merged]
    # Jump 0, sides 1 to 5 and 6 to 9, a loop from 10 on that ends with its jump at 14.
    jumps = {at: call for at, call in enumerate(method.calls) if isinstance(call, m.JumpFalseCall)}
    assert {at: call.destination_instruction for at, call in jumps.items()} == {0: 6, 5: 10, 14: 10}
    done = elide(method)
    assert [item.instruction for item in done.decisions] == [1, 3, 6, 8, 10]
    assert done.actions == ["alias"] * 5
    assert done.moved == {0: 0, 2: 1, 4: 2, 5: 3, 7: 4, 9: 5, 11: 6, 12: 7, 13: 8, 14: 9, 15: 10}
    calls = done.plan.chains[0].instructions
    after = {at: call.destination_instruction for at, call in enumerate(calls) if isinstance(call, m.JumpFalseCall)}
    assert after == {0: 4, 3: 6, 9: 6}


def test_a_jump_to_what_goes_at_the_end_leads_to_the_end() -> None:
    plan = Method().plan()
    flag = m.Bool(True)
    frames = tuple((m.Frame(name=str(number)),) for number in range(3))
    chains = (
        m.Chain((m.FreeCall(0), m.JumpFalseCall(0, 3), m.FreeCall(0)), stacktrace=frames),
        m.Chain((m.FreeCall(0), m.JumpFalseCall(0, 0))),
    )
    plan = replace(plan, values=(flag,), chains=chains)
    changed, moved = with_instructions(plan, {1: (m.JumpFalseCall(0, 2),), 0: (), 2: (), 3: ()})
    assert changed.chains == (
        m.Chain((m.JumpFalseCall(0, 1),), stacktrace=frames[1:2]),
        m.Chain((m.JumpFalseCall(0, 0),)),
    )
    assert moved == {1: 0, 4: 1}


def test_traces_of_the_first_instructions_only_stay_with_them() -> None:
    frames = ((m.Frame(name="first"),), (m.Frame(name="second"),))
    chain = m.Chain((m.FreeCall(0),) * 3, stacktrace=frames)
    plan = replace(Method().plan(), values=(m.Null(),), chains=(chain,))
    changed, _ = with_instructions(plan, {0: ()})
    assert changed.chains[0].stacktrace == frames[1:]


def test_values_in_a_new_order_are_found_by_all_that_refers_to_them() -> None:
    values = (m.Int(7), m.IntList((0,)), m.OptionalTensorList((3, -1)), m.Tensor(m.ScalarType.BYTE, (1,), (0,)))
    calls = (
        m.KernelCall(0, (3, 1, 2)),
        m.DelegateCall(4, (3, 0)),
        m.MoveCall(3, 0),
        m.JumpFalseCall(0, 4),
        m.FreeCall(3),
    )
    plan = replace(Method().plan(), values=values, inputs=(3,), outputs=(0, 3), chains=(m.Chain(calls, (3,), (0,)),))
    order = (3, 0, 1, 2)
    changed = renumbered(plan, order, order.index, lambda operator: operator + 5)
    assert changed.values == (values[3], values[0], m.IntList((1,)), m.OptionalTensorList((0, -1)))
    assert (changed.inputs, changed.outputs) == ((0,), (1, 0))
    assert changed.chains == (
        m.Chain(
            (
                m.KernelCall(5, (0, 2, 3)),
                m.DelegateCall(4, (0, 1)),
                m.MoveCall(0, 1),
                m.JumpFalseCall(1, 4),
                m.FreeCall(0),
            ),
            (0,),
            (1,),
        ),
    )
