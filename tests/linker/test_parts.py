"""Parts of tensors at the place of the whole: ``slice_copy``, ``split_copy`` and ``cat`` are removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from etdev.linker import Linked, LinkOptions, link
from etdev.program import model as m
from etdev.program.delegates import delegate_inputs
from etdev.verification.checks.plan import check_memory_plan
from linker.checked import decided, linked, operators, size
from linker.programs import Method, program

CAT = "cat.out"


def vector(method: Method, nbytes: int = 32) -> int:
    """Add a new value in one dimension."""
    out = method.vector(nbytes)
    method.kernel("aten::mm.out", method.inputs[0] if method.inputs else method.input(16), out, out)
    return out


def reduced(method: Method, *values: int) -> list[int]:
    """Add a small value that depends on all others."""
    return [method.op(*values, nbytes=16)]


def reason(done: Linked, kind: str) -> str:
    ((action, why),) = decided(done, kind).values()  # type: ignore[arg-type]
    assert action == "kept"
    return why


# cat


def test_the_inputs_of_a_cat_are_made_in_its_output() -> None:
    method = Method()
    method.outputs = reduced(method, method.put_together(vector(method), vector(method), vector(method)))
    done = linked(method)
    assert list(decided(done, "cat").values()) == [("placed", "")]
    assert CAT not in operators(done)
    assert size(done) == 16 + 96
    assert size(linked(method, elide=frozenset())) == 96 + 96


def test_cats_of_cats() -> None:
    method = Method()
    inner = method.put_together(vector(method), vector(method))
    method.outputs = reduced(method, method.put_together(vector(method), inner, vector(method)))
    done = linked(method)
    assert [action for action, _ in decided(done, "cat").values()] == ["placed", "placed"]
    assert size(done) == 16 + 128


def test_an_input_that_begins_another_cat() -> None:
    """As in densely connected layers: all earlier parts, and one more."""
    method = Method()
    parts = [vector(method)]
    whole = parts[0]
    for _ in range(3):
        parts.append(vector(method))
        whole = method.put_together(*parts)
        parts = [whole]
    method.outputs = reduced(method, whole)
    done = linked(method)
    assert [action for action, _ in decided(done, "cat").values()] == ["placed"] * 3
    assert size(done) == 16 + 128


def test_inputs_that_lie_one_behind_the_other_stay_together() -> None:
    method = Method()
    one, other, last = (vector(method) for _ in range(3))
    first = method.put_together(one, other)
    second = method.put_together(one, other, last)
    method.outputs = reduced(method, first, second)
    done = linked(method)
    assert [action for action, _ in decided(done, "cat").values()] == ["placed", "placed"]
    assert size(done) == 16 + 96


@pytest.mark.parametrize("free", ["the part", "the whole"])
def test_a_free_blocks_neither_cat_nor_slice(free: str) -> None:
    method = Method()
    one, other = vector(method), vector(method)
    whole = method.put_together(one, other)
    part = method.cut_out(whole, 0, 32)
    method.outputs = reduced(method, whole, part)
    for value in (one, part) if free == "the part" else (whole,):
        method.free(value)
    done = linked(method)
    assert list(decided(done, "cat").values()) == [("placed", "")]
    assert list(decided(done, "slices").values()) == [("alias", "")]
    assert size(done) == 16 + 64


def test_one_that_cannot_be_placed_is_copied_alone() -> None:
    method = Method()
    constant = method.flat(method.constant(32))
    method.outputs = reduced(method, method.put_together(vector(method, 64), constant, vector(method)))
    done = linked(method)
    ((action, why),) = decided(done, "cat").values()
    assert (action, why) == ("placed", "an input is a constant")
    (found,) = (item for item in done.methods[0].elisions if item.kind == "cat")
    assert found.nbytes == 96
    assert operators(done).count(CAT) == 1
    assert size(done) == 16 + 128


def test_the_result_of_a_kernel_that_works_in_place() -> None:
    method = Method()
    part = vector(method)
    done_in_place = method.like(part)
    method.kernel("aten::relu.out", part, done_in_place, done_in_place)
    method.outputs = reduced(method, method.put_together(vector(method), done_in_place))
    done = linked(method)
    assert [action for action, _ in decided(done, "cat").values()] == ["placed"]
    assert size(done) == 16 + 64


def test_a_part_that_is_read_later_too() -> None:
    method = Method()
    part = vector(method)
    whole = method.put_together(part, vector(method))
    method.outputs = [*reduced(method, whole), *reduced(method, part)]
    assert [action for action, _ in decided(linked(method), "cat").values()] == ["placed"]


def test_a_part_that_is_read_after_the_output_was_written_over() -> None:
    """The output is changed in place; the part has to keep its content."""
    method = Method()
    part = vector(method)
    whole = method.put_together(part, vector(method))
    changed = method.like(whole)
    method.kernel("aten::relu.out", whole, changed, changed)
    method.outputs = [*reduced(method, changed), *reduced(method, part)]
    done = linked(method)
    assert decided(done, "cat") == {2: ("placed", "the larger tensor is written again while a part of it is in use")}


def test_an_early_part_does_not_keep_a_large_output_in_use() -> None:
    """As in a network with skip connections: the first part exists long before the others."""
    method = Method()
    early = vector(method, 32)
    large = method.op(early, nbytes=1024)
    small = method.op(large, nbytes=32)
    method.outputs = reduced(method, method.put_together(early, method.flat(method.op(small, nbytes=512))))
    done = linked(method)
    ((action, why),) = decided(done, "cat").values()
    assert (action, why) == ("placed", "more memory would be in use")
    assert size(done) <= 16 + 32 + 1024 + 32


def twice(method: Method) -> list[int]:
    part = vector(method)
    return reduced(method, method.put_together(part, part))


def state(method: Method) -> list[int]:
    return reduced(method, method.put_together(method.flat(method.buffer(32, "cache"))))


def memory_of_the_caller(method: Method) -> list[int]:
    value = method.input(32, planned=False)
    method.values[value] = replace(method.at(value), sizes=(32,), dim_order=(0,))
    return reduced(method, method.put_together(value))


def rows(method: Method) -> list[int]:
    """Cut along a dimension that is not the first one."""
    one, other = (method.op(method.input(16), nbytes=32) for _ in range(2))
    out = method.tensor(64)
    parts = method.value(m.TensorList((one, other)))
    method.kernel("aten::cat.out", parts, method.value(m.Int(1)), out, out)
    method.outputs = [out]
    return [out]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (twice, "an input occurs twice"),
        (state, "an input is state"),
        (memory_of_the_caller, "an input is in memory that is not planned"),
    ],
)
def test_cats_that_stay(build: Callable[[Method], list[int]], why: str) -> None:
    method = Method()
    method.outputs = build(method)
    assert reason(linked(method), "cat") == why


def test_a_cat_whose_inputs_are_not_in_one_piece() -> None:
    method = Method()
    method.outputs = rows(method)
    done = link(program(method).program, LinkOptions())
    assert reason(done, "cat") == "its inputs are not contiguous in its output"


# Slices


def test_a_part_of_a_fixed_view_of_a_dynamic_tensor_is_no_state() -> None:
    """An alias in the bytes of the dynamic tensor would be taken for state, which another method overwrites."""
    method = Method("one")
    whole = method.op(method.input(16), nbytes=64, dynamic=True)
    fixed = method.vector(64)
    method.kernel("aten::view_copy.out", whole, method.numbers(64), fixed, fixed)
    method.outputs = [method.cut_out(fixed, 32, 64), method.op(method.cut_out(fixed, 0, 32))]
    other = Method("two")
    other.outputs = reduced(other, vector(other, 64))
    found = program(method, other)
    done = link(found.program, LinkOptions(), found.sidecar)
    why = "its input is a view of a tensor whose sizes are known only at run time"
    assert list(decided(done, "slices").values()) == [("kept", why)] * 2
    assert check_memory_plan(done.program).status == "passed"


def test_a_slice_is_read_where_the_whole_is() -> None:
    method = Method()
    whole = vector(method, 64)
    method.outputs = reduced(method, method.cut_out(whole, 32, 64), method.cut_out(whole, 0, 16))
    done = linked(method)
    assert list(decided(done, "slices").values()) == [("alias", ""), ("alias", "")]
    assert operators(done) == ["mm.out", "mm.out"]
    assert size(done) == 16 + 64


def test_a_slice_of_a_slice() -> None:
    method = Method()
    part = method.cut_out(vector(method, 128), 64, 128)
    method.outputs = reduced(method, method.cut_out(part, 32, 64))
    assert operators(linked(method)) == ["mm.out", "mm.out"]


def test_all_parts_of_a_split() -> None:
    method = Method()
    parts = method.cut_up(vector(method, 128), 32, 32, 64)
    method.outputs = reduced(method, *parts)
    done = linked(method)
    assert operators(done) == ["mm.out", "mm.out"]
    assert size(done) == 16 + 128


def test_a_small_part_does_not_keep_a_large_whole_in_use() -> None:
    method = Method()
    part = method.cut_out(vector(method, 512), 0, 16)
    large = method.op(method.inputs[0], nbytes=512)
    method.outputs = reduced(method, part, large)
    done = linked(method)
    assert reason(done, "slices") == "more memory would be in use"
    assert size(done) == 16 + 512 + 16


def test_a_cat_of_other_sizes_than_its_output_stays() -> None:
    """The kernel refuses such a call, and so did the proof of the link."""
    method = Method()
    whole = method.put_together(vector(method, 16), vector(method, 16))
    method.values[whole] = replace(method.at(whole), sizes=(1, 32), dim_order=(0, 1))
    method.outputs = reduced(method, whole)
    assert reason(link(program(method).program), "cat") in (
        "its inputs have other sizes than its output",
        "it has unexpected arguments",
    )


@pytest.mark.parametrize("sizes", [(32, 0), (16, 8), (8, 8, 16), (24, 8)])
def test_a_split_into_other_sizes_than_those_of_its_outputs_stays(sizes: tuple[int, ...]) -> None:
    """The kernel refuses such a call, and so did the proof of the link."""
    method = Method()
    parts = method.cut_up(vector(method), 16, 16)
    call = method.calls[-1]
    assert isinstance(call, m.KernelCall)
    method.calls[-1] = replace(call, args=(call.args[0], method.numbers(*sizes), *call.args[2:]))
    method.outputs = reduced(method, *parts)
    done = link(program(method).program)
    assert reason(done, "slices") in ("its output has another size", "it has unexpected arguments")


@pytest.mark.parametrize(("start", "end"), [(0, 8), (16, 16), (24, 32), (0, 1 << 40)])
def test_a_slice_of_another_size_than_its_output_stays(start: int, end: int) -> None:
    method = Method()
    part = method.cut_out(vector(method), 0, 16)
    call = method.calls[-1]
    assert isinstance(call, m.KernelCall)
    numbers = [method.value(m.Int(number)) for number in (0, start, end, 1)]
    method.calls[-1] = replace(call, args=(call.args[0], *numbers, *call.args[5:]))
    method.outputs = reduced(method, part)
    assert reason(link(program(method).program), "slices") == "its output has another size"


def test_a_slice_of_what_is_changed_later() -> None:
    method = Method()
    cache = method.buffer(32, "cache")
    part = method.cut_out(method.flat(cache), 0, 16)
    method.copy(cache, method.op(part, nbytes=32))
    method.outputs = reduced(method, part)
    done = linked(method)
    assert reason(done, "slices") == "the larger tensor is written again while a part of it is in use"


def test_a_slice_that_is_changed_in_place() -> None:
    method = Method()
    whole = vector(method, 64)
    part = method.cut_out(whole, 0, 32)
    changed = method.like(part)
    method.kernel("aten::relu.out", part, changed, changed)
    method.outputs = reduced(method, changed, whole)
    done = linked(method)
    assert reason(done, "slices") == "a part is written again while the larger tensor is in use"


def test_a_slice_in_both_branches() -> None:
    method = Method()
    condition, whole = method.input(16), vector(method, 64)
    merged = method.cond(condition, lambda: [method.cut_out(whole, 0, 32)], lambda: [method.cut_out(whole, 32, 64)])
    method.outputs = reduced(method, *merged)
    linked(method)


def test_a_part_that_is_added_is_no_output_of_a_delegate_behind_it() -> None:
    """The link copies one input of the ``cat`` into a new tensor, which comes before the delegate's output."""
    method = Method()
    constant = method.flat(method.constant(32))
    method.outputs = method.delegate(method.put_together(vector(method, 64), constant, vector(method)))
    done = linked(method)
    assert operators(done).count(CAT) == 1
    assert delegate_inputs(done.program, done.program.execution_plan[0]) == {len(operators(done)): 1}


def test_an_alias_of_state_is_no_output_of_the_delegate_that_reads_it() -> None:
    method = Method()
    method.input(32)
    view = method.flat(method.buffer(32, "state"))
    method.outputs = method.delegate(view)
    done = linked(method)
    assert operators(done) == []
    assert delegate_inputs(done.program, done.program.execution_plan[0]) == {0: 1}
