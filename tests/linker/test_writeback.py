"""New contents of state, computed at the place of the state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.program import model as m
from linker.checked import decided, linked, operators, size
from linker.programs import Method

PUT = "aten::index_put.out"


def updated(method: Method, cache: int, value: int, name: str = PUT) -> int:
    """Add a kernel on the state with a separate output."""
    out = method.like(cache)
    method.kernel(name, cache, value, out, out)
    return out


def test_the_update_of_a_cache_works_on_the_cache() -> None:
    method = Method()
    cache, x = method.buffer(64, "cache"), method.input(16)
    new = updated(method, cache, x)
    method.outputs = [method.op(new, nbytes=16)]
    method.copy(cache, new)
    done = linked(method)
    assert decided(done, "write_back") == {2: ("placed", "")}
    assert operators(done) == ["index_put.out", "mm.out"]
    assert size(done) == 64 + 16
    assert size(linked(method, elide=frozenset())) == 64 + 64 + 16


def test_a_free_of_the_new_content_does_not_block_the_write_back() -> None:
    method = Method()
    cache, x = method.buffer(64, "cache"), method.input(16)
    new = updated(method, cache, x)
    method.outputs = [method.op(new, nbytes=16)]
    method.copy(cache, new)
    method.free(new)
    assert decided(linked(method), "write_back") == {2: ("placed", "")}


def test_a_chain_of_kernels_works_on_the_state() -> None:
    method = Method()
    count, one = method.buffer(16, "count"), method.input(16)
    total = updated(method, count, one, "aten::add.out")
    method.copy(count, updated(method, total, one, "aten::mul.out"))
    method.outputs = [method.op(one)]
    done = linked(method)
    assert operators(done) == ["add.out", "mul.out", "mm.out"]


def test_what_does_not_need_the_old_content_is_computed_there() -> None:
    method = Method()
    state, x = method.buffer(64, "state"), method.input(16)
    method.outputs = [method.op(state, nbytes=16)]
    method.copy(state, method.op(x, nbytes=64))
    assert operators(linked(method)) == ["mm.out", "mm.out"]


def test_the_new_content_may_be_an_output() -> None:
    method = Method()
    cache = method.buffer(64, "cache")
    new = updated(method, cache, method.input(16))
    method.copy(cache, new)
    method.outputs = [new]
    assert operators(linked(method)) == ["index_put.out"]


def old_content_read_later(method: Method, cache: int, x: int) -> list[int]:
    new = updated(method, cache, x)
    result = method.op(cache, nbytes=16)
    method.copy(cache, new)
    return [result]


def view_of_the_old_content(method: Method, cache: int, x: int) -> list[int]:
    view = method.view(cache)
    new = updated(method, cache, x)
    result = method.op(view, nbytes=16)
    method.copy(cache, new)
    return [result]


def kernel_that_may_not(method: Method, cache: int, x: int) -> list[int]:
    new = method.op(cache, x, nbytes=64)
    method.copy(cache, new)
    return [method.op(new)]


def written_twice(method: Method, cache: int, x: int) -> list[int]:
    method.copy(cache, updated(method, cache, x))
    method.copy(cache, updated(method, cache, x))
    return [method.op(x)]


def changed_after_the_copy(method: Method, cache: int, x: int) -> list[int]:
    new = updated(method, cache, x)
    method.copy(cache, new)
    method.kernel("my::update", new, x, method.value(m.Bool(False)))
    return [method.op(new)]


def computed_in_a_branch(method: Method, cache: int, x: int) -> list[int]:
    new = updated(method, cache, x)

    def side() -> list[int]:
        method.copy(cache, new)
        return [method.op(x)]

    return method.cond(x, side, lambda: [method.op(x)])


def of_an_input(method: Method, cache: int, x: int) -> list[int]:
    method.copy(cache, method.input(64))
    return [method.op(x)]


def of_a_constant(method: Method, cache: int, x: int) -> list[int]:
    method.copy(cache, method.constant(64))
    return [method.op(x)]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (old_content_read_later, "the state is read or written while its source is in use"),
        (view_of_the_old_content, "the state is read or written while its source is in use"),
        (
            kernel_that_may_not,
            "the instruction that computes its source reads the state: its kernel may not work in place",
        ),
        (changed_after_the_copy, "its source is written again afterwards"),
        (computed_in_a_branch, "its source is computed in another branch"),
        (of_an_input, "its source is an input"),
        (of_a_constant, "its source is a constant"),
    ],
)
def test_write_backs_that_stay(build: Callable[[Method, int, int], list[int]], why: str) -> None:
    method = Method()
    cache, x = method.buffer(64, "cache"), method.input(16)
    method.outputs = build(method, cache, x)
    ((action, reason),) = decided(linked(method), "write_back").values()
    assert (action, reason) == ("kept", why)


def test_state_that_is_written_twice() -> None:
    method = Method()
    cache, x = method.buffer(64, "cache"), method.input(16)
    method.outputs = written_twice(method, cache, x)
    done = linked(method)
    assert set(decided(done, "write_back").values()) == {("kept", "the state is written more than once")}


@pytest.mark.parametrize("first", [True, False])
def test_a_dying_operand_does_not_keep_the_sum_from_the_state(first: bool) -> None:
    """``total += x``: the sum could reuse the bytes of ``x``, but would then have to be copied."""
    method = Method()
    total, x = method.buffer(16, "total"), method.input(16)
    out = method.like(total)
    method.kernel("aten::add.out", *((total, x) if first else (x, total)), out, out)
    method.copy(total, out)
    method.outputs = [out]
    done = linked(method)
    assert operators(done) == ["add.out"]
    (found,) = done.methods[0].inplace
    assert found.argument == (0 if first else 1)


def test_what_is_left_for_a_write_back_that_does_not_come_takes_another_operand() -> None:
    method = Method()
    total, x = method.buffer(16, "total"), method.op(method.input(64), nbytes=16)
    out = method.like(total)
    method.kernel("aten::add.out", total, x, out, out)
    method.outputs = [out]
    (found,) = linked(method).methods[0].inplace
    assert found.argument == 1
