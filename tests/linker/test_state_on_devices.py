"""State that only one device accesses, in methods with branches and loops: it stays there (A5, B5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.linker import Linked
from etdev.program import model as m
from etdev.program.devices import D2H_COPY, H2D_COPY
from linker.checked import linked
from linker.programs import Method

SIZE = 128
"""Bytes of the state, and of nothing else in these methods."""


def renewed(method: Method, state: int, *args: int) -> int:
    """Add a delegate on a device that computes the new content of state."""
    (new,) = method.delegate(*args, state, nbytes=[SIZE], device="cuda:0", backend="EtdevReferenceBackend")
    return new


def start() -> tuple[Method, int, int]:
    """Return a method, an input of it, and its state."""
    method = Method()
    return method, method.input(16), method.buffer(SIZE, "cache")


def a_branch_between() -> Method:
    method, data, state = start()
    new = renewed(method, state, data)
    method.outputs = method.cond(data, lambda: [method.op(data)], lambda: [method.op(data, data)])
    method.copy(state, new)
    return method


def a_loop_between() -> Method:
    method, data, state = start()
    new, rows = renewed(method, state, data), method.tensor(64)
    with method.loop(4) as counter:
        method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(data, nbytes=16), counter)
    method.copy(state, new)
    method.outputs = [rows]
    return method


def both_on_one_side() -> Method:
    method, data, state = start()

    def side() -> list[int]:
        method.copy(state, renewed(method, state, data))
        return [method.op(data)]

    method.outputs = method.cond(data, side, lambda: [method.op(data, data)])
    return method


def both_in_a_loop() -> Method:
    method, data, state = start()
    rows = method.tensor(64)
    with method.loop(4) as counter:
        method.copy(state, renewed(method, state, data))
        method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(data, nbytes=16), counter)
    method.outputs = [rows]
    return method


def computed_always_but_kept_on_one_side() -> Method:
    method, data, state = start()
    new = renewed(method, state, data)

    def side() -> list[int]:
        method.copy(state, new)
        return [method.op(data)]

    method.outputs = method.cond(data, side, lambda: [method.op(data, data)])
    return method


def computed_in_each_round_but_kept_once() -> Method:
    method, data, state = start()
    new, rows = 0, method.tensor(64)
    with method.loop(4) as counter:
        new = renewed(method, state, data)
        method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(data, nbytes=16), counter)
    method.copy(state, new)
    method.outputs = [rows]
    return method


def computed_once_but_kept_in_each_round() -> Method:
    method, data, state = start()
    new, rows = renewed(method, state, data), method.tensor(64)
    with method.loop(4) as counter:
        method.copy(state, new)
        method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(data, nbytes=16), counter)
    method.outputs = [rows]
    return method


def old_content_read_on_one_side() -> Method:
    """Read the old content in a delegate of the same device, after the new one was computed."""
    method, data, state = start()
    new = renewed(method, state, data)

    def side() -> list[int]:
        return method.delegate(state, nbytes=[32], device="cuda:0", backend="EtdevReferenceBackend")

    method.outputs = method.cond(data, side, lambda: [method.op(data)])
    method.copy(state, new)
    return method


def crossing(done: Linked) -> int:
    """Return the number of copies of state between host and devices."""
    plan = done.program.execution_plan[0]
    calls = [call for chain in plan.chains for call in chain.instructions if isinstance(call, m.KernelCall)]
    copies = [call.args[-1] for call in calls if plan.operators[call.op_index].name in (H2D_COPY, D2H_COPY)]
    return sum(tensor.nbytes == SIZE for value in copies if isinstance(tensor := plan.values[value], m.Tensor))


@pytest.mark.parametrize("make", [a_branch_between, a_loop_between, both_on_one_side, both_in_a_loop])
def test_it_stays_where_each_new_content_is_kept(make: Callable[[], Method]) -> None:
    assert crossing(linked(make())) == 0


@pytest.mark.parametrize(
    "make",
    [
        computed_always_but_kept_on_one_side,
        computed_in_each_round_but_kept_once,
        computed_once_but_kept_in_each_round,
        old_content_read_on_one_side,
    ],
)
def test_it_is_on_the_host_where_a_new_content_cannot_be_written_over_the_old_one(make: Callable[[], Method]) -> None:
    """The link is proved; written at that place, the content would differ."""
    assert crossing(linked(make())) > 0
