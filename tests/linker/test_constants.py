"""Constants that a program permutes or cuts at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from etdev.linker import Linked, LinkOptions, link
from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.program.constants import constant_data, constants_size
from etdev.program.footprint import planned_memory
from linker.checked import decided, linked, operators, size
from linker.programs import Method, program


def constants(done: Linked) -> list[bytes]:
    """Return the data of each constant that is used, in the order of the values."""
    plan = done.program.execution_plan[0]
    return [bytes(data) for _, tensor in plan.tensors() if (data := constant_data(done.program, tensor)) is not None]


def given(nbytes: int, number: int = 1) -> bytes:
    """Return the data of that constant of the test programs."""
    method = Method()
    method.outputs = [method.op(method.constant(nbytes, number))]
    return constants_of(program(method).program)[0]


def constants_of(whole: Program) -> list[bytes]:
    plan = whole.execution_plan[0]
    return [bytes(data) for _, tensor in plan.tensors() if (data := constant_data(whole, tensor)) is not None]


def segment(whole: Program) -> Blob:
    assert whole.constant_segment is not None
    return whole.segments[whole.constant_segment.segment_index].data


def turned(data: bytes, rows: int = 4) -> bytes:
    columns = len(data) // rows
    return bytes(data[row * columns + column] for column in range(columns) for row in range(rows))


def test_a_permuted_weight_is_put_into_the_file() -> None:
    method = Method()
    method.outputs = [method.op(method.input(16), method.turn(method.constant(64)), nbytes=16)]
    done = linked(method)
    assert decided(done, "constants") == {0: ("constant", "")}
    assert operators(done) == ["mm.out"]
    assert size(done) == 32
    assert constants(done) == [turned(given(64))]
    assert len(segment(done.program)) == 64


@pytest.mark.parametrize("copy", [Method.turn, Method.flat])
def test_a_free_goes_with_the_copy_that_becomes_a_constant(copy: Callable[[Method, int], int]) -> None:
    """A constant has no memory to free, and its pointer is set once."""
    method = Method()
    weight = copy(method, method.constant(64))
    method.outputs = [method.op(method.input(16), weight, nbytes=16)]
    method.free(weight)
    done = linked(method)
    (chain,) = done.program.execution_plan[0].chains
    assert [type(call) for call in chain.instructions] == [m.KernelCall]


def test_several_turns_of_one_weight_are_one() -> None:
    method = Method()
    weight = method.constant(64)
    method.outputs = [method.op(method.turn(weight), method.turn(weight), nbytes=16)]
    done = linked(method)
    assert operators(done) == ["mm.out"]
    assert len(segment(done.program)) == 64


def test_a_weight_that_is_used_as_it_is_too_may_be_in_the_file_twice() -> None:
    """Only if that takes less than the memory for the copy."""
    method = Method()
    weight = method.constant(64)
    method.outputs = [method.op(method.turn(weight), weight, nbytes=16)]
    done = linked(method)
    assert constants(done) == [given(64), turned(given(64))]
    assert size(done) == 16


def test_a_weight_is_not_there_twice_if_the_memory_is_needed_anyway() -> None:
    method = Method()
    weight = method.constant(64)
    small = method.op(method.turn(weight), weight, nbytes=16)
    method.outputs = [method.op(method.op(small, nbytes=128), nbytes=16)]
    done = linked(method)
    assert decided(done, "constants") == {0: ("kept", "the file would grow by more than the memory shrinks")}
    assert segment(done.program) == segment(program(method).program)


def test_a_part_of_a_weight_takes_no_room() -> None:
    method = Method()
    weight = method.flat(method.constant(64))
    method.outputs = [method.op(method.cut_out(weight, 16, 32), weight, nbytes=16)]
    done = linked(method)
    assert operators(done) == ["mm.out"]
    assert constants(done) in ([given(64), given(64)[16:32]], [given(64)[16:32], given(64)])
    assert len(segment(done.program)) == 64


def test_what_nobody_uses_any_more_goes() -> None:
    method = Method()
    weight = method.flat(method.constant(64))
    method.outputs = [method.op(method.cut_out(weight, 16, 32), nbytes=16)]
    assert len(segment(linked(method).program)) == 16


def test_a_view_of_a_turned_weight() -> None:
    method = Method()
    method.outputs = [method.op(method.flat(method.turn(method.constant(64))), nbytes=16)]
    done = linked(method)
    assert operators(done) == ["mm.out"]
    assert constants(done) == [turned(given(64))]


def test_a_turned_weight_that_is_an_output() -> None:
    method = Method()
    method.outputs = [method.turn(method.constant(64))]
    done = linked(method)
    assert decided(done, "constants") == {0: ("kept", "its output is an output of the method, or the source of a move")}


def test_what_a_move_replaces_is_not_a_constant() -> None:
    method = Method()
    data, weight = method.input(64), method.constant(64)
    method.move(data, weight)
    method.outputs = [method.op(method.turn(weight), nbytes=16)]
    assert not decided(linked(method), "constants")


def test_a_weight_in_another_file() -> None:
    method = Method()
    info = m.ExtraTensorInfo(fully_qualified_name="weight", location=m.TensorDataLocation.EXTERNAL)
    weight = method.tensor(64, planned=False, extra_tensor_info=info)
    method.outputs = [method.op(method.turn(weight), nbytes=16)]
    assert not decided(linked(method), "constants")


def test_the_same_weight_in_two_methods() -> None:
    from etdev.linker import LinkOptions, link

    methods = [Method("a"), Method("b")]
    for method in methods:
        method.outputs = [method.op(method.turn(method.constant(64)), nbytes=16)]
    found = program(*methods)
    done = link(found.program, LinkOptions(), found.sidecar)
    assert len(segment(done.program)) == 64
    for plan in done.program.execution_plan:
        assert constants_of(replace(done.program, execution_plan=(plan,))) == [turned(given(64))]


def test_a_link_for_sizes_alone_has_zeros_for_the_data() -> None:
    method = Method()
    first, second = method.turn(method.constant(64)), method.turn(method.constant(96, 2))
    method.outputs = [method.op(method.input(16), first, second, nbytes=16)]
    whole = program(method)
    found, sizes = (
        link(whole.program, LinkOptions(sizes_only=sizes_only), whole.sidecar) for sizes_only in (False, True)
    )
    assert constants(found) == [turned(given(64)), turned(given(96, 2))]
    assert constants(sizes) == [bytes(64), bytes(96)]
    assert sizes.program.execution_plan == found.program.execution_plan
    assert constants_size(sizes.program) == constants_size(found.program)
    assert planned_memory(sizes.program) == planned_memory(found.program)
