"""Correct links that the validator once refused: each was drawn at random and reduced."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.linker import LinkOptions, link
from etdev.program import model as m
from etdev.validator import validate_file
from linker.programs import Method, program
from validator.test_proofs import check_link

CASES: list[Callable[[], Method]] = []


def case(build: Callable[[], Method]) -> Callable[[], Method]:
    """Register a case."""
    CASES.append(build)
    return build


@pytest.mark.parametrize("planner", ["best", "greedy"])
@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_is_proved(build: Callable[[], Method], planner: str) -> None:
    check_link(program(build()), LinkOptions(planner=planner))


def _update(method: Method, *args: int) -> None:
    """Call an unknown operator, which may change its arguments."""
    method.kernel("my::update", *args, method.value(m.Bool(False)))


def _carry(method: Method, of: int) -> int:
    """Add a tensor that a loop changes in each iteration."""
    carry = method.tensor(16)
    method.copy(carry, method.op(of, nbytes=16))
    return carry


@case
def state_that_only_moves_name() -> Method:
    """Change state in a loop through a value that is, depending on the path, the state or a copy of it."""
    method = Method()
    state, x, y = method.buffer(32, "state"), method.input(16), method.input(16)
    with method.loop(1) as counter:
        (merged,) = method.cond(x, lambda: [method.flat(method.flat(state))], lambda: [state])
        _update(method, x, merged)
        rows = method.tensor(64, dynamic=True)
        method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(y, nbytes=16), counter)
    method.outputs = [x]
    return method


@case
def a_change_through_a_merged_value_in_a_loop() -> Method:
    """Change a merged value in a loop; content after that is computed after the merge, in the same iteration."""
    method = Method()
    x, y = method.input(16), method.input(16)
    carry = _carry(method, x)
    with method.loop(1):
        (merged,) = method.cond(x, lambda: [x], lambda: [method.op(y, nbytes=16)])
        _update(method, x, merged)
        method.copy(carry, method.op(merged, carry, nbytes=16))
        method.op(merged, nbytes=16)
    method.outputs = [x]
    return method


@case
def sizes_that_a_view_makes_sure_of_on_one_path() -> Method:
    method = Method()
    x, y, z = method.input(16), method.input(16), method.input(16, dynamic=True)
    (merged,) = method.cond(x, lambda: [method.view(z)], lambda: [method.op(y, nbytes=16, dynamic=True)])
    method.view(z)
    method.several(merged, nbytes=(16, 16))
    method.outputs = [x]
    return method


@case
def sizes_that_a_view_after_a_merge_makes_sure_of() -> Method:
    method = Method()
    x, y, z = method.input(16), method.input(16), method.input(16, dynamic=True)
    (merged,) = method.cond(x, lambda: [z], lambda: [method.op(y, nbytes=16, dynamic=True)])
    seen = method.view(merged)
    method.view(z)
    method.outputs = [seen]
    return method


@case
def a_change_of_some_bytes_of_a_dynamic_tensor_on_one_path() -> Method:
    method = Method()
    x, y = method.input(16, dynamic=True), method.input(16)
    (merged,) = method.cond(x, lambda: [x], lambda: [method.op(x, nbytes=16, dynamic=True)])
    method.op(merged, nbytes=16, dynamic=True, name="my::fused.out")
    method.view(y)
    method.outputs = [x]
    return method


@case
def rows_that_an_elided_copy_puts_out() -> Method:
    """Return rows; without the copy, the output is the rows, whose sizes are those that earlier calls left."""
    method = Method()
    x = method.input(16)
    rows = method.tensor(64, dynamic=True)
    with method.loop(1) as counter:
        method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(x, nbytes=16), counter)
    method.outputs = [method.view(rows, "aten::alias_copy.out")]
    return method


@case
def sizes_in_conditions_in_conditions() -> Method:
    """Nest conditions; a dynamic tensor of the inner one shares its place with one of the other path."""
    method = Method()
    x = method.input(16, dynamic=True)

    def made() -> list[int]:
        return [method.op(x, nbytes=16, dynamic=True)]

    def unused() -> list[int]:
        made()
        return [x, x]

    def branch() -> list[int]:
        return method.cond(x, unused, lambda: [*made(), x])[:1]

    method.outputs = method.cond(x, branch, made)
    return method


@case
def a_view_of_a_result_of_branches_that_a_loop_reads() -> Method:
    """Read a view in a loop that does not change it; after the link it is one of two tensors."""
    method = Method()
    x = method.input(16)
    (merged,) = method.cond(x, lambda: [x], lambda: [method.op(x, nbytes=16)])
    seen = method.view(merged)
    carry = _carry(method, x)
    with method.loop(1):
        method.copy(carry, method.op(seen, carry, nbytes=16))
        method.op(seen, nbytes=16)
    method.outputs = [x]
    return method


@case
def sizes_that_are_known_on_every_path() -> Method:
    """Fix sizes on one path by a view there, on the other by a view after the merge."""
    method = Method()
    x, y = method.input(16, dynamic=True), method.input(16)

    def viewed() -> list[int]:
        seen = method.view(x)
        return [seen, seen]

    def made() -> list[int]:
        return [method.op(y, nbytes=16, dynamic=True), x]

    one, other = method.cond(x, viewed, made)
    method.view(one)
    method.outputs = [method.view(other)]
    return method


@case
def sizes_that_a_view_makes_sure_of_on_one_path_in_a_loop() -> Method:
    method = Method()
    x, y = method.input(16), method.input(16)
    carry = _carry(method, x)
    with method.loop(1):
        (merged,) = method.cond(
            x,
            lambda: [method.et_view(method.op(y, nbytes=16, dynamic=True, name="aten::nonzero.out"))],
            lambda: [method.op(carry, nbytes=16, dynamic=True)],
        )
        method.copy(carry, method.op(x, carry, nbytes=16))
        method.op(merged, nbytes=16)
    method.outputs = [x]
    return method


@case
def a_change_of_one_of_two_dynamic_tensors_in_a_loop() -> Method:
    """Change a value in a loop; afterwards it holds the written content, on each path."""
    method = Method()
    x = method.input(16, dynamic=True)
    (merged,) = method.cond(x, lambda: [method.view(x)], lambda: [method.op(x, nbytes=16, dynamic=True)])
    with method.loop(1):
        method.op(merged, nbytes=16, name="my::fused.out")
    method.outputs = [x]
    return method


@case
def a_change_of_a_dynamic_tensor_on_one_path_in_a_loop() -> Method:
    """Change a dynamic tensor whose written extent differs between paths, equally in both programs."""
    method = Method()
    x = method.input(16, dynamic=True)

    def made() -> list[int]:
        return [method.op(x, nbytes=16, dynamic=True) for _ in range(2)]

    _, merged = method.cond(x, lambda: [x, x], made)
    with method.loop(1):
        method.op(merged, nbytes=16, name="my::fused.out")
    method.outputs = [x]
    return method


def _rows(method: Method) -> int:
    """Add a loop that fills the four rows of a dynamic tensor, as ``map`` and ``scan`` do."""
    rows = method.tensor(64, dynamic=True)
    row = method.input(16)
    with method.loop(4) as counter:
        method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(row, nbytes=16), counter)
    return rows


def _fixed_copy(method: Method, of: int, name: str) -> int:
    """Copy a dynamic tensor to one of fixed sizes."""
    copy = method.tensor(method.at(of).nbytes)
    arguments = (method.value(m.Bool(False)), method.value(m.Null())) if "clone" in name else ()
    method.kernel(name, of, *arguments, copy, copy)
    return copy


@case
def a_clone_of_the_rows_of_a_loop() -> Method:
    method = Method()
    copy = _fixed_copy(method, _rows(method), "dim_order_ops::_clone_dim_order.out")
    method.outputs = [method.op(copy, nbytes=64, name="aten::tanh.out")]
    return method


@case
def an_alias_of_the_rows_of_a_loop_that_is_an_output() -> Method:
    method = Method()
    method.outputs = [_fixed_copy(method, _rows(method), "aten::alias_copy.out")]
    return method


@case
def copies_of_a_copy_of_the_rows_of_a_loop() -> Method:
    method = Method()
    rows = _rows(method)
    copy = _fixed_copy(method, rows, "aten::clone.out")
    again = _fixed_copy(method, copy, "aten::detach_copy.out")
    method.outputs = [method.op(again, nbytes=64, name="aten::tanh.out"), method.op(rows, nbytes=64)]
    return method


@case
def a_part_of_a_copy_of_the_rows_of_a_loop() -> Method:
    """Read the first rows only: the copy shows how many rows there are, and that is more."""
    method = Method()
    copy = _fixed_copy(method, _rows(method), "aten::alias_copy.out")
    method.outputs = [method.cut_out(method.flat(copy), 0, 16)]
    return method


@pytest.mark.parametrize("dynamic", [True, False])
def test_sizes_are_asked_of_what_was_written_over(dynamic: bool) -> None:
    """The sizes of a tensor are not in its bytes."""
    method = Method()
    data = method.input(64, dynamic=dynamic)
    found = method.op(method.op(data, nbytes=64), nbytes=64)
    method.outputs = [method.op(found, method.size(data))]
    whole = program(method)
    options = LinkOptions(inplace={})
    check_link(whole, options)
    linked = link(whole.program, options, whole.sidecar).program
    assert linked.execution_plan[0].non_const_buffer_sizes == (0, 128)
    assert validate_file(linked, {"forward": {}}).violations == ()
