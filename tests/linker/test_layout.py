"""Buffers and the addresses in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from etdev.errors import LinkError
from etdev.linker import Linked, LinkOptions, layout, link
from etdev.planner import Problem, make
from etdev.planner.best import best
from etdev.program import Program
from etdev.program import model as m
from etdev.program.check import check_structure
from etdev.program.info import BufferInfo
from linker.oracle import Call, Machine
from linker.programs import Method, foreign, program


def chain(name: str = "forward", length: int = 3, nbytes: int = 32) -> Method:
    """Build a chain in which each value is needed only for the next one."""
    method = Method(name)
    value = method.input(nbytes)
    for _ in range(length):
        value = method.op(value, nbytes=nbytes)
    method.outputs = [value]
    return method


def linked(*methods: Method, **options: object) -> Linked:
    """Link methods. Check that the result is complete and computes the same."""
    found = program(*methods)
    done = link(found.program, LinkOptions(**options), found.sidecar)
    check_structure(done.program)
    calls = [Call(method.name, seed) for seed in range(2) for method in methods]
    assert Machine(done.program, inputs=found.inputs).run(*calls) == Machine(found.program, inputs=found.inputs).run(
        *calls
    )
    return done


def sizes(found: Program) -> list[tuple[int, ...]]:
    return [plan.non_const_buffer_sizes for plan in found.execution_plan]


def offsets(plan: m.ExecutionPlan, buffer: int = 1) -> list[int]:
    """Return the offset of each value in a buffer, in order."""
    places = [tensor.allocation_info for _, tensor in plan.tensors()]
    return [place.memory_offset for place in places if place and place.memory_id == buffer]


# Addresses


def test_values_that_are_over_give_their_bytes_to_others() -> None:
    done = linked(chain())
    assert sizes(done.program) == [(0, 64)]
    assert offsets(done.program.execution_plan[0]) == [0, 32, 0, 32]
    assert done.methods[0].buffers == (BufferInfo(1, "cpu", 64, 64),)
    assert done.planner == "best"


def test_a_planner_that_reuses_nothing_is_reported_with_the_bound() -> None:
    done = linked(chain(), planner="naive")
    assert done.methods[0].buffers == (BufferInfo(1, "cpu", 128, 64),)
    assert done.planner == "naive"


@pytest.mark.parametrize("alignment", [1, 16, 64, 256])
def test_addresses_are_multiples_of_the_alignment(alignment: int) -> None:
    done = linked(chain(nbytes=36), alignment=alignment)
    found = offsets(done.program.execution_plan[0])
    step = -(-36 // alignment) * alignment
    assert found == [0, step, 0, step]
    assert sizes(done.program) == [(0, step + 36)]


def test_state_is_aligned_too() -> None:
    methods = []
    for name in "ab":
        method = chain(name)
        method.kernel("my::update", method.buffer(20, "count"), method.inputs[0])
        methods.append(method)
    done = linked(*methods, alignment=64)
    assert [offsets(plan, 2) for plan in done.program.execution_plan] == [[0], [64]]
    assert [size[2] for size in sizes(done.program)] == [20, 84]


def test_aliases_keep_their_place_in_what_they_show() -> None:
    method = Method()
    data = method.input(64)
    whole = method.op(data, nbytes=64)
    method.outputs = [method.op(method.alias(whole, 16, 32), method.alias(whole, 16, 48))]
    done = linked(method)
    given, base, *inside, _ = offsets(done.program.execution_plan[0])
    assert [offset - base for offset in inside] == [32, 48]
    assert given != base


def test_a_value_that_only_names_others_loses_its_place() -> None:
    method = Method()
    data = method.input(32)
    merged = method.cond(data, lambda: [method.op(data)], lambda: [method.op(data)])
    method.outputs = [method.op(*merged)]
    plan = linked(method).program.execution_plan[0]
    moves = [call for call in plan.chains[0].instructions if isinstance(call, m.MoveCall)]
    assert {plan.values[call.move_to].allocation_info for call in moves} == {None}


def test_but_as_an_output_it_keeps_one_for_without_it_would_be_the_callers() -> None:
    method = Method()
    data = method.input(32)
    method.outputs = method.cond(data, lambda: [method.op(data)], lambda: [method.op(data)])
    plan = linked(method).program.execution_plan[0]
    assert plan.values[plan.outputs[0]].allocation_info is not None


def test_a_tensor_without_bytes_has_an_address_all_the_same() -> None:
    method = Method()
    method.outputs = [method.op(method.input(0), nbytes=0)]
    done = linked(method)
    assert offsets(done.program.execution_plan[0]) == [0, 0]
    assert sizes(done.program) == [(0, 0)]


def test_an_unbounded_tensor_keeps_an_address_all_the_same() -> None:
    method = Method()
    one = method.op(method.input(32))
    place = m.AllocationDetails(1, 0)
    unbounded = m.Tensor(
        m.ScalarType.BYTE, (4, 8), (0, 1), m.TensorShapeDynamism.DYNAMIC_UNBOUND, allocation_info=place
    )
    method.outputs = [one, method.value(unbounded)]
    done = linked(method)
    assert offsets(done.program.execution_plan[0])[-1] == 0


# Buffers


@pytest.mark.parametrize(("backend", "more"), [("XnnpackBackend", 64), ("MyBackend", 0)])
def test_a_backend_that_reads_past_the_end_gets_bytes_to_read_there(backend: str, more: int) -> None:
    methods = []
    for name in "ab":
        method = chain(name)
        method.delegate(method.outputs[0], method.buffer(32, "count"))
        method.delegates = [replace(item, id=backend) for item in method.delegates]
        methods.append(method)
    done = linked(*methods)
    assert sizes(done.program) == [(0, 64 + more, 32 + more), (0, 64 + more, 64 + more)]
    assert [[item.size - item.lower_bound for item in method.buffers] for method in done.methods] == [[0, 0], [0, 0]]


def test_only_methods_that_have_the_backend_get_them() -> None:
    method = chain("b")
    method.delegate(method.outputs[0])
    method.delegates = [replace(item, id="XnnpackBackend") for item in method.delegates]
    assert sizes(linked(chain("a"), method).program) == [(0, 64), (0, 128)]


def _in_two_buffers() -> m.Program:
    """Build a foreign file with temporaries in several buffers."""
    method = chain(length=4)
    for value in (1, 2, 4):
        place = method.at(value).allocation_info
        method.values[value] = replace(
            method.at(value), allocation_info=m.AllocationDetails(2, place.memory_offset if place else 0)
        )
    return foreign(program(method).program, non_const_buffer_sizes=(0, method.end, method.end))


def test_each_buffer_is_planned_by_itself() -> None:
    done = link(_in_two_buffers())
    assert sizes(done.program) == [(0, 32, 64)]
    assert [(item.index, item.size) for item in done.methods[0].buffers] == [(1, 32), (2, 64)]


def test_a_planner_sees_one_buffer_at_a_time() -> None:
    """Values in different buffers, each on one device, never share bytes, whatever the planner (A5)."""
    seen: list[list[str]] = []

    def planner(problem: Problem) -> Sequence[int]:
        seen.append([item.name for item in problem.buffers])
        return [128 * index for index in range(len(problem.buffers))]

    done = link(_in_two_buffers(), LinkOptions(planner=planner, planner_name="mine:planner"))
    assert seen == [["value 0", "value 3"], ["value 1", "value 2", "value 4"]]
    places = [tensor.allocation_info for _, tensor in done.program.execution_plan[0].tensors()]
    assert [(place.memory_id, place.memory_offset) for place in places if place] == [
        (1, 0),
        (2, 0),
        (2, 128),
        (1, 128),
        (2, 256),
    ]


def test_state_goes_behind_temporaries_that_are_in_its_buffer() -> None:
    methods = []
    for name in "ab":
        method = chain(name)
        method.kernel("my::update", method.buffer(32, "count"), method.inputs[0])
        place = method.at(1).allocation_info
        method.values[1] = replace(method.at(1), allocation_info=replace(place, memory_id=2))
        methods.append(method)
    found = program(*methods)
    plans = tuple(
        replace(plan, non_const_buffer_sizes=(0, *plan.non_const_buffer_sizes[1:] * 2))
        for plan in found.program.execution_plan
    )
    done = link(replace(found.program, execution_plan=plans), LinkOptions(), found.sidecar)
    check_structure(done.program)
    assert [[(item.index, item.state) for item in method.buffers] for method in done.methods] == [
        [(1, False), (2, False), (3, True)]
    ] * 2


def test_state_alone_leaves_the_buffer_of_temporaries_empty() -> None:
    methods = []
    for name in "ab":
        method = Method(name)
        method.outputs = [method.buffer(32, "count")]
        methods.append(method)
    done = linked(*methods)
    assert sizes(done.program) == [(0, 0, 32), (0, 0, 64)]


def test_a_method_without_memory_has_no_buffers() -> None:
    constant = Method("constant")
    constant.outputs = [constant.constant(32), constant.value(m.Int(1))]
    done = linked(chain(), constant)
    assert sizes(done.program) == [(0, 64), (0,)]
    assert done.methods[1].buffers == ()


def test_a_program_without_methods_stays_one() -> None:
    empty = Program(())
    done = link(empty)
    assert (done.program, done.methods, done.shared_state) == (empty, (), ())


# Planners


def test_a_planner_may_be_a_function_that_sees_the_buffers_of_a_method() -> None:
    seen: list[Problem] = []

    def planner(problem: Problem) -> Sequence[int]:
        seen.append(problem)
        return [128 * index for index in range(len(problem.buffers))]

    method = chain()
    method.kernel("my::update", method.buffer(16, "count"), method.outputs[0])
    done = linked(method, planner=planner, planner_name="mine:planner")
    (problem,) = seen
    assert [(item.size, item.start, item.end, item.name) for item in problem.buffers] == [
        (32, 0, 2, "value 0"),
        (32, 1, 3, "value 1"),
        (32, 2, 4, "value 2"),
        (32, 3, 6, "value 3"),
        (16, 0, 6, "count"),
    ]
    assert offsets(done.program.execution_plan[0]) == [0, 128, 256, 384, 512]
    assert done.planner == "mine:planner"


WRONG: dict[str, tuple[object, str]] = {
    "collides": (
        lambda problem: [0] * len(problem.buffers),
        "buffer 0 'value 0' at bytes [0, 32) and buffer 1 'value 1' at bytes [0, 32) are both in use",
    ),
    "too few": (lambda problem: [0], "expected one offset for each of 4 buffers, found 1 offsets"),
    "misaligned": (
        lambda problem: [100 * index for index in range(4)],
        "buffer 1 'value 1' is at offset 100, which is not a multiple of its alignment 16",
    ),
}


def test_a_built_in_planner_plans_the_same_storages_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build links a candidate as a trial, and the chosen one again; a function may answer differently each time."""
    planned: list[Problem] = []

    def counting(problem: Problem) -> list[int]:
        planned.append(problem)
        return best(problem)

    monkeypatch.setattr(make, "PLANNERS", {"best": counting})
    layout._known_plan.cache_clear()
    first, again = linked(chain()), linked(chain())
    assert len(planned) == 1
    assert first.program == again.program
    linked(chain(nbytes=48))
    assert len(planned) == 2
    linked(chain(), planner=counting)
    linked(chain(), planner=counting)
    assert len(planned) == 4
    layout._known_plan.cache_clear()


@pytest.mark.parametrize("name", WRONG)
def test_a_planner_that_is_wrong_is_named_with_its_place(name: str) -> None:
    planner, words = WRONG[name]
    found = program(chain("decode"))
    with pytest.raises(LinkError) as refused:
        link(found.program, LinkOptions(planner=planner, planner_name="mine:planner"), found.sidecar)
    assert refused.value.message.startswith("the plan is wrong: planner mine:planner: ")
    assert refused.value.message.endswith(words)
    assert refused.value.where == "method 'decode', buffer 1"
    assert refused.value.hint == "fix the planner, or use the planner `best`"


def test_a_planner_that_there_is_not_is_named_with_those_there_are() -> None:
    found = program(chain())
    with pytest.raises(LinkError, match="there is no planner 'bets'; expected best, greedy, naive, or a function"):
        link(found.program, LinkOptions(planner="bets"), found.sidecar)


def test_what_a_planner_raises_passes_through() -> None:
    def planner(problem: Problem) -> Sequence[int]:
        raise ZeroDivisionError

    found = program(chain())
    with pytest.raises(ZeroDivisionError):
        link(found.program, LinkOptions(planner=planner), found.sidecar)


def test_a_tensor_that_nobody_refers_to_leaves_no_buffer() -> None:
    """After a second link, the file would not have it."""
    method = Method()
    method.tensor(32)
    (plan,) = link(program(method).program).program.execution_plan
    assert (plan.values, plan.non_const_buffer_sizes) == ((), (0,))
