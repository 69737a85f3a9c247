"""The link as a whole: linked methods, methods that keep their plan, and the report."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from etdev.decisions import Elision
from etdev.linker import Linked, LinkOptions, link, link_foreign
from etdev.linker.lift import lift
from etdev.linker.options import MethodReport
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.storage import method_memory
from etdev.program.check import check_structure
from etdev.program.footprint import planned_memory
from linker.oracle import Call, Machine
from linker.programs import Method, Object, program

CALLS = (Call(seed=1, decisions=(True,)), Call(seed=2, decisions=(False,)), Call(seed=3, decisions=(True, False)))
PLANNERS = ("best", "greedy", "naive")


def memory(found: Program) -> int:
    return planned_memory(found)["cpu"]


def linked(found: Object, **options: object) -> Linked:
    """Link an object program, and check that it computes the same."""
    done = link(found.program, LinkOptions(**options), found.sidecar)
    check_structure(done.program)
    calls = [replace(call, method=plan.name) for call in CALLS for plan in found.program.execution_plan]
    wanted = Machine(found.program, inputs=found.inputs).run(*calls)
    assert Machine(done.program, inputs=found.inputs).run(*calls) == wanted
    return done


def simple(name: str = "forward") -> Method:
    """Build a kernel, a view, another kernel."""
    method = Method(name)
    one = method.op(method.input(32))
    method.outputs = [method.op(method.view(one), name="aten::relu.out")]
    return method


# The report


def test_a_report_tells_of_each_copy_and_where_the_instructions_are_now() -> None:
    done = linked(program(simple()))
    (report,) = done.methods
    assert report.elisions == (Elision(1, "aten::view_copy.out", "alias", 32),)
    assert report.renumbered == {0: 0, 2: 1}
    assert report.kept is None
    plan = done.program.execution_plan[0]
    assert plan.operators == (m.Operator("aten::mm", "out"), m.Operator("aten::relu", "out"))


def test_nothing_is_left_that_nobody_refers_to() -> None:
    """Nor are the sizes of the removed view."""
    method = simple()
    method.value(m.String("unused"))
    plan = linked(program(method)).program.execution_plan[0]
    assert [type(value) for value in plan.values] == [m.Tensor] * 4
    assert [call.args for call in plan.chains[0].instructions] == [(0, 1, 1), (2, 3, 3)]
    assert (plan.inputs, plan.outputs) == ((0,), (3,))


def test_views_stay_if_nobody_wants_them_to_go() -> None:
    done = linked(program(simple()), elide=frozenset())
    assert done.methods[0].elisions == ()
    assert done.methods[0].renumbered == {0: 0, 1: 1, 2: 2}
    assert len(done.program.execution_plan[0].chains[0].instructions) == 3


def test_what_is_no_methods_stays_as_it_is() -> None:
    found = program(simple())
    done = linked(found)
    assert replace(done.program, execution_plan=()) == replace(found.program, execution_plan=())


def test_a_method_that_the_sidecar_does_not_have_is_linked_too() -> None:
    """A constant method: the sidecar has nothing to state about it."""
    constant = Method("limit")
    constant.outputs = [constant.value(m.Int(7))]
    found = program(simple(), constant)
    del found.sidecar.methods["limit"]  # type: ignore[attr-defined]
    done = linked(found)
    assert done.methods[1] == MethodReport("limit", (), (), (), {})


# Methods that keep their plan


def unknown_delegate(plan: m.ExecutionPlan) -> m.ExecutionPlan:
    """Add a delegate call whose only argument is an input; the file does not say what it writes."""
    delegate = m.BackendDelegate("MyBackend", m.BackendDelegateDataReference(m.DataLocation.INLINE, 0))
    chain = plan.chains[0]
    calls = (*chain.instructions, m.DelegateCall(0, plan.inputs))
    return replace(plan, delegates=(delegate,), chains=(replace(chain, instructions=calls),))


KEPT: dict[str, tuple[Callable[[m.ExecutionPlan], m.ExecutionPlan], str, str]] = {
    "a delegate that cannot be told": (
        unknown_delegate,
        "the file does not say which arguments of instruction 3 (MyBackend) are its outputs",
        "cpu",
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_method_that_says_too_little_keeps_its_plan_and_says_why(name: str) -> None:
    change, reason, device = KEPT[name]
    whole = program(simple("a"), simple("b")).program
    kept = change(whole.execution_plan[0])
    whole = replace(whole, execution_plan=(kept, whole.execution_plan[1]))
    done = link(whole)
    assert done.program.execution_plan[0] is kept
    report, other = done.methods
    assert report.kept == reason
    assert [(item.device, item.size, item.lower_bound) for item in report.buffers] == [
        (device, kept.non_const_buffer_sizes[1], None)
    ]
    assert report.elisions == ()
    assert list(report.renumbered) == list(range(len(kept.chains[0].instructions)))
    assert other.kept is None
    assert done.program.execution_plan[1].non_const_buffer_sizes == (0, 64)


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_a_method_that_reads_a_freed_tensor_keeps_its_plan(read: bool, jumps: bool) -> None:
    """A later write to a tensor in planned memory does not give it a pointer again."""
    method = Method()
    data = method.input(16)
    value = method.op(data)

    def freed() -> list[int]:
        method.free(value)
        return [method.op(data)]

    outs = method.cond(data, freed, lambda: [method.op(data, data)]) if jumps else freed()
    method.kernel("aten::mm.out", data, value, value)
    method.outputs = [*outs, method.op(value if read else data)]
    kept = link(program(method).program).methods[0].kept
    assert (kept is not None) == read
    assert not read or re.fullmatch(r"instruction \d+ may read value \d+ after it was freed", kept or "")


@pytest.mark.parametrize("frees", [False, True])
def test_a_loop_that_frees_what_it_read_keeps_its_plan(frees: bool) -> None:
    method = Method()
    data = method.input(16)
    value, rows = method.op(data, nbytes=16), method.tensor(64)
    with method.loop(4) as counter:
        method.kernel("executorch_prim::et_copy_index.tensor", rows, value, counter)
        if frees:
            method.free(value)
    method.outputs = [rows]
    assert (link(program(method).program).methods[0].kept is not None) == frees


@pytest.mark.parametrize(
    ("change", "kept"), [({}, False), ({"scalar_type": m.ScalarType.INT}, True), ({"sizes": (8,)}, True)]
)
def test_a_move_between_unlike_tensors_keeps_the_plan(change: dict[str, object], kept: bool) -> None:
    """The tensor that the move sets has another type or size from then on than the file states."""
    method = Method()
    data = method.input(16)
    one, two = method.op(data), method.op(data)
    method.values[one] = replace(method.at(one), **change)  # type: ignore[arg-type]
    method.move(one, two)
    method.outputs = [method.op(two)]
    assert (link(program(method).program).methods[0].kept is not None) == kept


def test_a_method_that_may_share_state_with_one_that_keeps_its_plan_keeps_its_own() -> None:
    whole = program(simple("a"), simple("b")).program
    first, second = whole.execution_plan
    second = replace(second, non_const_buffer_sizes=(*second.non_const_buffer_sizes, 32))
    whole = replace(whole, execution_plan=(unknown_delegate(first), second))
    done = link(whole)
    assert done.program == whole
    assert done.methods[1].kept == "it may share state with the method 'a', which keeps its plan"


def test_the_sidecar_knows_the_outputs_of_a_delegate() -> None:
    """The file alone does not determine them: the output has a lower number than the input."""
    method = Method()
    out = method.tensor(32)
    data = method.input(32)
    method.delegates = [m.BackendDelegate("MyBackend", m.BackendDelegateDataReference(m.DataLocation.INLINE, 0))]
    method.delegate_inputs[0] = 1
    method.calls.append(m.DelegateCall(0, (data, out)))
    method.outputs = [out]
    found = program(method)
    assert linked(found).methods[0].kept is None
    assert link(found.program).methods[0].kept is not None


# Foreign programs whose own plan is smaller

AS_IS = LinkOptions(reorder=False)
"""Options of a link that does not find out that another order of these programs takes less memory."""


def with_a_hole(name: str = "forward", state: int | None = None) -> Method:
    """Build a value that is written twice, and one over it in between: in etdev's plan it has one lifetime.

    ``state``: buffer of the state that it keeps between calls.
    """
    method = Method(name)
    data = method.input(64)
    one = method.op(data, nbytes=64)
    method.op(one)
    between = method.op(data, nbytes=64)
    method.op(between)
    method.copy(one, data)
    method.outputs = [method.op(one)]
    places = {index: (1, 128) for index, _ in method.plan().tensors()} | {data: (1, 0), one: (1, 64), between: (1, 64)}
    if state is not None:
        kept = method.buffer(32, "count")
        method.update(kept, data)
        places[kept] = state, 160 if state == 1 else 0
    for index, place in places.items():
        method.values[index] = replace(method.at(index), allocation_info=m.AllocationDetails(*place))
    method.end = 192 if state == 1 else 160
    return method


def planned(*methods: Method) -> Program:
    """Build a foreign program of such methods; all have a second buffer."""
    whole = program(*methods).program
    plans = (replace(plan, non_const_buffer_sizes=(*plan.non_const_buffer_sizes, 32)) for plan in whole.execution_plan)
    return replace(whole, execution_plan=tuple(plans))


def relink(whole: Program) -> Linked:
    """Relink as ``etdev relink`` does. Check that it computes the same and takes no more memory."""
    done = link_foreign(whole, AS_IS)
    check_structure(done.program)
    calls = [replace(call, method=plan.name) for call in CALLS for plan in whole.execution_plan]
    assert Machine(done.program).run(*calls) == Machine(whole).run(*calls)
    return done


def test_a_foreign_plan_that_takes_less_memory_stays() -> None:
    whole = program(with_a_hole()).program
    assert memory(link(whole, AS_IS).program) == 224
    done = relink(whole)
    assert done.program == whole
    (report,) = done.methods
    assert report.kept == "a new plan would need 64 more bytes"
    assert [(item.size, item.lower_bound) for item in report.buffers] == [(160, None)]
    assert report.renumbered == {position: position for position in range(6)}


def test_it_stays_method_by_method() -> None:
    whole = program(with_a_hole("a"), with_a_hole("b")).program
    second = replace(whole.execution_plan[1], non_const_buffer_sizes=(0, 1024))
    done = relink(replace(whole, execution_plan=(whole.execution_plan[0], second)))
    assert [report.kept for report in done.methods] == ["a new plan would need 64 more bytes", None]
    assert [plan.non_const_buffer_sizes for plan in done.program.execution_plan] == [(0, 160), (0, 224)]


def test_methods_with_state_keep_their_plans_together() -> None:
    """It is at the same addresses in all of them. ``c`` has none, but its new temporaries might overlap it."""
    identity = Method("c")
    identity.outputs = [identity.input(32)]
    whole = planned(with_a_hole("a", state=2), with_a_hole("b", state=2), identity)
    done = relink(whole)
    assert [report.kept for report in done.methods] == ["a new plan would need 64 more bytes"] * 3
    assert done.program == whole
    assert done.shared_state == ("count",)


@pytest.mark.parametrize("state_with", ["the branches", "the other method"])
def test_plans_that_are_kept_beside_new_ones_lay_nothing_over_state(state_with: str) -> None:
    """Temporaries in buffer 2 of one method, state of another there: old and new plans do not mix."""
    found, offsets = branches_that_share("a")
    other = Method("b")
    if state_with == "the branches":
        state = found.buffer(32, "count")
        found.outputs.append(found.op(state))
        found.update(state, found.outputs[-1])
        offsets |= {state: (2, 0), found.outputs[-1]: (1, 64), 2: (2, 32)}
        inner = other.op(other.input(32))
        other.outputs = [other.op(inner)]
        others = {other.inputs[0]: (1, 0), inner: (2, 64), other.outputs[0]: (1, 32)}
    else:
        state = other.buffer(32, "count")
        other.outputs = [other.op(other.input(32), state)]
        other.update(state, other.outputs[0])
        others = {state: (1, 512), other.inputs[0]: (1, 544), other.outputs[0]: (1, 576)}
    whole = program(found, other).program
    plans = [at(found.plan(), offsets), at(other.plan(), others)]
    whole = replace(whole, execution_plan=tuple(plans))
    check_structure(whole)

    calls = [Call(name, seed, (seed % 2 == 0,)) for seed in range(3) for name in "ab"]
    kept = link_foreign(whole).program
    for shared in (False, True):
        assert Machine(kept, shared=shared).run(*calls) == Machine(whole, shared=shared).run(*calls)


def branches_that_share(name: str) -> tuple[Method, dict[int, tuple[int, int]]]:
    """Put a value that only one path reads in the bytes of a value that only the other path has.

    No plan by lifetimes does that.
    """
    method = Method(name)
    x, flag = method.input(32), method.input(16)
    view = method.view(x)
    read_else = method.op(view, nbytes=128)
    ways: list[int] = []

    def then() -> list[int]:
        ways.append(method.op(x, nbytes=128))
        ways.append(method.op(ways[0]))
        return ways[1:]

    def other() -> list[int]:
        ways.append(method.op(read_else))
        return ways[2:]

    (merged,) = method.cond(flag, then, other)
    method.outputs = [method.op(merged)]
    places = [(x, 0), (flag, 32), (read_else, 64), *zip(ways, (64, 192, 192), strict=True), (merged, 192)]
    found = {value: (1, offset) for value, offset in places} | {view: (2, 0), method.outputs[0]: (1, 0)}
    return method, found


def at(plan: m.ExecutionPlan, places: dict[int, tuple[int, int]]) -> m.ExecutionPlan:
    """Return the method with these places, and buffers as large as they have to be."""
    values, sizes = list(plan.values), [0, 0, 0]
    for value, (buffer, offset) in places.items():
        tensor = values[value]
        assert isinstance(tensor, m.Tensor)
        values[value] = replace(tensor, allocation_info=m.AllocationDetails(buffer, offset))
        sizes[buffer] = max(sizes[buffer], offset + tensor.nbytes)
    return replace(plan, values=tuple(values), non_const_buffer_sizes=tuple(sizes[: 2 + bool(sizes[2])]))


@pytest.mark.parametrize("second", [1, 2])
def test_methods_with_state_among_their_temporaries_get_new_plans(second: int) -> None:
    """Some loaders would let one method overwrite the state of another."""
    done = link(whole := planned(with_a_hole("a", state=1), with_a_hole("b", state=second)), AS_IS)
    assert link_foreign(whole, AS_IS) == done
    assert memory(done.program) > memory(whole)
    calls = [Call(name, seed) for seed in range(3) for name in "ab"]
    assert Machine(done.program, shared=True).run(*calls) == Machine(whole).run(*calls)


def test_the_only_method_with_memory_may_have_its_state_anywhere() -> None:
    whole = planned(with_a_hole(state=1))
    assert relink(whole).program == whole


def test_a_reason_that_a_method_has_already_stays() -> None:
    whole = program(simple()).program
    whole = replace(whole, execution_plan=tuple(map(unknown_delegate, whole.execution_plan)))
    done = link(whole)
    assert link_foreign(whole) == done


def test_a_foreign_plan_that_is_larger_is_planned_anew() -> None:
    done = link(program(simple()).program)
    assert done.methods[0].kept is None
    assert memory(done.program) == 64


def test_what_is_lifted_has_addresses_of_its_own_with_gaps_between() -> None:
    """Tensors that overlapped do not overlap any more; an alias keeps its offset in its source."""
    method = with_a_hole()
    reader = method.calls[3]
    assert isinstance(reader, m.KernelCall)
    between, *out = reader.args
    alias = method.alias(between, 32, 16)
    method.calls[3] = replace(reader, args=(alias, *out))
    plan = method.plan()
    found = method_memory(plan, {})
    lifted = lift(plan, found)
    offsets = {index: place.memory_offset for index, tensor in lifted.tensors() if (place := tensor.allocation_info)}
    pieces = sorted((offsets[item.values[0]], item.size) for item in found.storages)
    for (start, size), (after, _) in pairwise(pieces):
        assert start + size + 64 <= after
    assert offsets[alias] == offsets[between] + 16
    assert sum(pieces[-1]) <= lifted.non_const_buffer_sizes[1]


# Views of the result of a branch


def branch_and_view(after: int) -> Method:
    """View a branch's result, which is needed until so many further bytes were computed."""
    method = Method()
    data = method.input(64)

    def side() -> list[int]:
        return [method.op(data, nbytes=64)]

    view = method.view(*method.cond(data, side, side))
    large = method.op(data, nbytes=after)
    method.outputs = [method.op(view, large)]
    return method


def test_a_view_that_would_cost_memory_is_kept_a_copy() -> None:
    """Both tensors that it may be would be in use with the large one; their copy is only one tensor."""
    done = linked(program(branch_and_view(after=256)))
    (found,) = done.methods[0].elisions
    assert (found.action, found.reason) == ("kept", "all tensors that may be its input would be in use for longer")
    assert memory(done.program) == 64 + 64 + 256


def test_a_view_that_costs_nothing_is_set_at_run_time() -> None:
    done = linked(program(branch_and_view(after=16)))
    assert [item.action for item in done.methods[0].elisions] == ["view"]
    assert memory(done.program) < 4 * 64


# Again


def branches() -> Method:
    method = Method()
    data = method.input(64)
    merged = method.cond(data, lambda: [method.view(method.op(data))], lambda: method.several(data)[:1])
    method.outputs = [method.op(*merged, nbytes=128), *method.split(data)]
    return method


def loops() -> Method:
    method = Method()
    data = method.input(64)
    carry = method.tensor(32)
    method.copy(carry, method.op(data))
    with method.loop(3):
        new = method.op(data, carry)
        method.copy(carry, method.view(new))
    method.outputs = [method.op(carry, nbytes=16)]
    return method


def stateful(name: str) -> Method:
    method = Method(name)
    kept = method.buffer(64, "cache")
    seen = method.op(method.input(32), kept, nbytes=128)
    method.update(kept, seen)
    method.outputs = [method.op(method.view(seen))]
    return method


AGAIN: dict[str, Callable[[], Object]] = {
    "a straight line": lambda: program(simple()),
    "branches": lambda: program(branches()),
    "a view of a branch's result": lambda: program(branch_and_view(after=256)),
    "loops": lambda: program(loops()),
    "state": lambda: program(stateful("a")),
    "state of several methods": lambda: program(stateful("a"), stateful("b"), simple("c")),
}


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("name", AGAIN)
def test_what_is_linked_again_takes_as_much_memory_and_stays_so(name: str, planner: str) -> None:
    once = linked(AGAIN[name](), planner=planner).program
    again = link(once, LinkOptions(planner=planner)).program
    assert memory(again) == memory(once)
    assert link(again, LinkOptions(planner=planner)).program == again


@pytest.mark.parametrize("name", AGAIN)
def test_two_links_of_a_program_are_equal(name: str) -> None:
    assert linked(AGAIN[name]()).program == linked(AGAIN[name]()).program


def test_shared_state_is_still_shared_when_linked_again() -> None:
    found = program(stateful("a"), stateful("b"))
    once = link(found.program, LinkOptions(share_state=True), found.sidecar)
    again = link(once.program)
    assert once.shared_state == again.shared_state == ("cache",)
    assert memory(again.program) == memory(once.program)


# Comparison with another planner


def tight() -> Method:
    """Return a method whose tensors a greedy planner spreads over more bytes than necessary."""
    method = Method()
    found = method.input(16)
    for nbytes in (48, 160, 64, 96, 240, 32, 112, 176, 80):
        found = method.op(found, method.op(found, nbytes=nbytes), nbytes=nbytes // 2 * 3 // 16 * 16)
    method.outputs = [found]
    return method


@pytest.mark.parametrize("reorder", [True, False])
@pytest.mark.parametrize("planner", ["greedy", "naive"])
def test_the_sizes_with_another_planner_are_those_of_a_link_with_it(planner: str, *, reorder: bool) -> None:
    found = program(tight(), simple("other"))
    done = link(found.program, LinkOptions(reorder=reorder), found.sidecar, compare=planner)
    moved = any(method.order for method in done.methods)
    again = link(found.program, LinkOptions(planner=planner, reorder=moved), found.sidecar)
    assert done.compared == {
        method.name: {buffer.index: buffer.size for buffer in method.buffers} for method in again.methods
    }
    assert done.compared != {
        method.name: {buffer.index: buffer.size for buffer in method.buffers} for method in done.methods
    }


def test_a_link_compares_with_no_planner_unless_asked() -> None:
    found = program(simple())
    assert link(found.program, None, found.sidecar).compared == {}
