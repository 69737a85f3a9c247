"""Shared state: by name in object programs, by address in others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etdev.errors import LinkError
from etdev.linker import Linked, LinkOptions, link
from etdev.linker.state import State, kept_by_others, state_by_address, state_by_name, state_name
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory, method_memory
from etdev.program.check import check_structure
from linker.oracle import Call, Machine
from linker.programs import Method, program


class Foreign(Method):
    """Method with a second planned buffer, at addresses from another planner."""

    def placed(self, nbytes: int, offset: int, buffer: int = 2, **more: object) -> int:
        """Add a tensor at an address."""
        index = self.tensor(nbytes, planned=False, **more)
        self.values[index] = replace(self.at(index), allocation_info=m.AllocationDetails(buffer, offset))
        return index

    def plan(self) -> m.ExecutionPlan:
        return replace(super().plan(), non_const_buffer_sizes=(0, self.end, 256))


def memories(*methods: Method) -> list[MethodMemory]:
    return [method_memory(method.plan(), method.delegate_inputs, method.state) for method in methods]


def counter(name: str, state: str = "count", nbytes: int = 32) -> Method:
    """Build a method that returns its input with the state, and changes the state."""
    method = Method(name)
    kept = method.buffer(nbytes, state)
    seen = method.op(method.input(32), kept)
    method.update(kept, seen)
    method.outputs = [seen]
    return method


def reset(name: str, state: str = "count") -> Method:
    """Build a method that writes all of the state and reads none of it."""
    method = Method(name)
    method.copy(method.buffer(32, state), method.input(32))
    method.outputs = method.inputs[:1]
    return method


def linked(*methods: Method, share: bool = False) -> Linked:
    """Link methods. Check that the result computes the same, in the loader that it needs."""
    found = program(*methods)
    done = link(found.program, LinkOptions(share_state=share), found.sidecar)
    calls = [Call(method.name, seed) for seed in range(3) for method in methods]
    check_structure(done.program)
    wanted = Machine(found.program, named=found.named if share else {}, inputs=found.inputs).run(*calls)
    assert Machine(done.program, shared=True, inputs=found.inputs).run(*calls) == wanted
    if not share:
        assert Machine(done.program, inputs=found.inputs).run(*calls) == wanted
    return done


def state_places(found: Program) -> list[tuple[str, str, int, int]]:
    """Return (method, name, buffer, offset) of each piece of state."""
    return [
        (plan.name, tensor.extra_tensor_info.fully_qualified_name, place.memory_id, place.memory_offset)
        for plan in found.execution_plan
        for _, tensor in plan.tensors()
        if (place := tensor.allocation_info) and tensor.extra_tensor_info
    ]


# Linked object programs


def test_the_state_of_a_single_method_lies_among_its_temporaries() -> None:
    done = linked(counter("a"))
    ((_, _, buffer, _),) = state_places(done.program)
    assert buffer == 1
    assert [item.state for item in done.methods[0].buffers] == [False]


def test_state_of_several_methods_is_apart_in_a_buffer_of_its_own() -> None:
    done = linked(counter("a"), counter("b"))
    assert state_places(done.program) == [("a", "count", 2, 0), ("b", "count", 2, 32)]
    assert done.shared_state == ()
    assert [[(item.index, item.state) for item in method.buffers] for method in done.methods] == [
        [(1, False), (2, True)]
    ] * 2


def test_state_of_the_same_name_is_one_if_it_is_shared() -> None:
    done = linked(counter("a"), counter("b"), share=True)
    assert state_places(done.program) == [("a", "count", 2, 0), ("b", "count", 2, 0)]
    assert done.shared_state == ("count",)


def test_state_of_other_names_stays_apart() -> None:
    done = linked(counter("a", "x"), counter("b", "y"), counter("c", "x"), share=True)
    assert state_places(done.program) == [("a", "x", 2, 0), ("b", "y", 2, 32), ("c", "x", 2, 0)]
    assert done.shared_state == ("x",)


def test_a_method_that_only_writes_the_shared_state_writes_that() -> None:
    done = linked(counter("a"), reset("b"), share=True)
    assert state_places(done.program) == [("a", "count", 2, 0), ("b", "count", 2, 0)]


def test_beside_a_method_without_memory_state_lies_among_temporaries() -> None:
    constant = Method("constant")
    constant.outputs = [constant.value(m.Int(7))]
    ((_, _, buffer, _),) = state_places(linked(counter("a"), constant).program)
    assert buffer == 1


@pytest.mark.parametrize("share", [True, False])
def test_state_that_only_a_view_looks_at_stays_at_its_place(share: bool) -> None:
    """The view is removed, and with it every reference to the state itself."""
    reader = Method("reader")
    first, second = reader.buffer(32, "other"), reader.buffer(32, "count")
    reader.outputs = [reader.op(reader.view(second), first)]
    done = linked(counter("a"), reader, share=share)
    assert [item.action for item in done.methods[1].elisions] == ["alias"]
    (plan,) = (plan for plan in done.program.execution_plan if plan.name == "reader")
    views = [
        tensor.allocation_info
        for index, tensor in plan.tensors()
        if index in plan.chains[0].instructions[0].args and not tensor.extra_tensor_info and index not in plan.outputs
    ]
    ((_, _, _, offset),) = (place for place in state_places(done.program) if place[:2] == ("a", "count"))
    assert views == [m.AllocationDetails(2, 0 if share else 64)]
    assert offset == 0


def test_methods_that_disagree_about_the_size_cannot_share() -> None:
    found = program(counter("prefill"), counter("decode", nbytes=64))
    with pytest.raises(LinkError) as refused:
        link(found.program, LinkOptions(share_state=True), found.sidecar)
    assert refused.value.message == (
        "the methods cannot share the state 'count': it has 32 bytes in 'prefill', 64 bytes in 'decode'"
    )
    assert refused.value.hint == "give the buffer the same shape in every method, or turn model.share_state off"
    linked(counter("prefill"), counter("decode", nbytes=64))


def test_initial_values_stay_with_their_state() -> None:
    method = Method("a")
    kept = method.buffer(32, "count", initial=2)
    method.outputs = [method.op(kept)]
    done = linked(method, counter("b"))
    assert [tensor.data_buffer_idx for _, tensor in done.program.method("a").tensors()] == [2, 0]


# By name


def test_state_without_a_name_is_each_methods_own() -> None:
    methods = []
    for name in "ab":
        method = Method(name)
        method.outputs = [method.op(method.tensor(32))]
        methods.append(method)
    found = state_by_name([method.plan() for method in methods], memories(*methods), [{}, {}], share=True)
    assert found == (
        State(((0, 0, 0),), 32, "value 0", shared=False),
        State(((1, 0, 0),), 32, "value 0", shared=False),
    )


def test_two_buffers_of_one_method_with_the_same_name_are_one_if_shared() -> None:
    """Like two tensors that the module has under one name."""
    method = Method()
    one, two = method.buffer(32, "count"), method.buffer(32, "count")
    method.outputs = [method.op(one, two)]
    plans, found = [method.plan()], memories(method)
    (state,) = state_by_name(plans, found, [method.state], share=True)
    assert state == State(((0, one, 0), (0, two, 0)), 32, "count", shared=False)
    assert len(state_by_name(plans, found, [method.state], share=False)) == 2


def test_the_aliases_of_state_are_members_of_it() -> None:
    method = Method()
    kept = method.buffer(64, "count")
    half = method.alias(kept, 32, 32)
    method.outputs = [method.op(kept, half)]
    (state,) = state_by_name([method.plan()], memories(method), [method.state], share=False)
    assert state.members == ((0, kept, 0), (0, half, 32))


def test_a_name_is_that_of_the_first_value_that_has_one() -> None:
    method = Method()
    values = [method.tensor(32), method.value(m.Int(1)), method.buffer(32, "b"), method.buffer(32, "c")]
    assert state_name(method.plan(), values) == "b"
    assert state_name(method.plan(), values[:2]) is None


# By address


def test_what_overlaps_in_a_buffer_of_state_is_one() -> None:
    one, two = Foreign("a"), Foreign("b")
    whole = one.placed(64, 64)
    one.outputs = [one.op(whole)]
    half, other = two.placed(32, 96), two.placed(32, 128)
    two.outputs = [two.op(half, other)]
    found = state_by_address([one.plan(), two.plan()], memories(one, two))
    assert found == (
        State(((0, whole, 0), (1, half, 32)), 64, "state 0", shared=True),
        State(((1, other, 0),), 32, "state 1", shared=False),
    )


def test_what_reaches_over_several_pieces_holds_them_together() -> None:
    one, two = Foreign("a"), Foreign("b")
    parts = [one.placed(32, 0), one.placed(32, 32)]
    one.outputs = [one.op(*parts)]
    whole = two.placed(64, 0)
    two.outputs = [two.op(whole)]
    (state,) = state_by_address([one.plan(), two.plan()], memories(one, two))
    assert sorted(state.members) == [(0, parts[0], 0), (0, parts[1], 32), (1, whole, 0)]
    assert (state.size, state.shared) == (64, True)


def test_a_piece_inside_another_ends_nothing() -> None:
    one, two = Foreign("a"), Foreign("b")
    whole = one.placed(128, 0)
    one.outputs = [one.op(whole)]
    parts = [two.placed(16, 0), two.placed(32, 64)]
    two.outputs = [two.op(*parts)]
    (state,) = state_by_address([one.plan(), two.plan()], memories(one, two))
    assert state.members == ((0, whole, 0), (1, parts[0], 0), (1, parts[1], 64))


def test_a_part_of_another_methods_state_stays_that_part() -> None:
    one, two = Foreign("a"), Foreign("b")
    whole, half = one.placed(64, 64), two.placed(32, 96)
    one.outputs = [one.op(whole)]
    one.update(whole, one.input(32))
    two.outputs = [two.op(half)]
    two.update(two.alias(half, 16, 16), two.input(32))
    found = program(one, two)
    done = link(found.program)
    calls = [Call(name, seed) for seed in range(3) for name in "ab"]
    assert Machine(done.program, shared=True).run(*calls) == Machine(found.program, shared=True).run(*calls)
    places = [
        [place for _, tensor in plan.tensors() if (place := tensor.allocation_info) and place.memory_id == 2]
        for plan in done.program.execution_plan
    ]
    assert places == [[m.AllocationDetails(2, 0)], [m.AllocationDetails(2, 32), m.AllocationDetails(2, 48)]]


def test_state_in_the_buffer_of_temporaries_is_private() -> None:
    one, two = Foreign("a"), Foreign("b")
    for method in (one, two):
        method.outputs = [method.op(method.placed(32, 0, buffer=1, extra_tensor_info=m.ExtraTensorInfo(0, "count")))]
    found = state_by_address([one.plan(), two.plan()], memories(one, two))
    assert [(state.name, state.shared) for state in found] == [("count", False)] * 2


def test_equal_addresses_in_two_buffers_are_apart() -> None:
    one, two = Foreign("a"), Foreign("b")
    one.outputs = [one.op(one.placed(32, 0))]
    two.outputs = [two.op(two.placed(32, 0, buffer=3))]
    assert [state.shared for state in state_by_address([one.plan(), two.plan()], memories(one, two))] == [False] * 2


WRITERS = {"over a part": (2, 16, True), "next to it": (2, 32, False), "in the buffer of temporaries": (1, 0, False)}


@pytest.mark.parametrize("name", WRITERS)
def test_what_a_method_writes_where_another_keeps_state_is_kept(name: str) -> None:
    """The method does not show it: it never reads what it writes."""
    buffer, offset, kept = WRITERS[name]
    keeper, writer = Foreign("a"), Foreign("b")
    state = keeper.placed(32, 0)
    keeper.outputs = [keeper.op(state)]
    written = writer.placed(32, offset, buffer)
    writer.copy(written, writer.input(32))
    found = memories(keeper, writer)
    assert kept_by_others(found) == [set(), {written} if kept else set()]


def test_nobody_keeps_what_others_write_among_temporaries() -> None:
    keeper, writer = Foreign("a"), Foreign("b")
    keeper.outputs = [keeper.op(keeper.placed(32, 0, buffer=1))]
    writer.copy(writer.placed(32, 0, buffer=1), writer.input(32))
    assert kept_by_others(memories(keeper, writer)) == [set(), set()]


def test_nobody_keeps_what_no_other_method_keeps() -> None:
    keeper = Foreign("a")
    state = keeper.placed(32, 0)
    keeper.outputs = [keeper.op(state)]
    keeper.copy(keeper.placed(32, 64), keeper.outputs[0])
    assert kept_by_others(memories(keeper)) == [set()]


def nameless(found: Program) -> Program:
    """Return the program without the names of its state."""
    return replace(
        found,
        execution_plan=tuple(
            replace(
                plan,
                values=tuple(
                    replace(value, extra_tensor_info=None) if isinstance(value, m.Tensor) else value
                    for value in plan.values
                ),
            )
            for plan in found.execution_plan
        ),
    )


def test_a_foreign_method_that_only_writes_shared_state_still_does() -> None:
    once = nameless(linked(counter("a"), reset("b"), share=True).program)
    again = link(once)
    assert again.shared_state == ("state 0",)
    calls = [Call(name, seed) for seed in range(3) for name in "aab"]
    assert Machine(again.program, shared=True).run(*calls) == Machine(once, shared=True).run(*calls)
    assert again.program.method("b").non_const_buffer_sizes[2] == 32
