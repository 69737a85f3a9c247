"""Inputs and outputs whose dimensions have another order in memory than in the shape. All runtimes agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etdev.program import Program
from etdev.program import model as m
from etdev.runtime.dim_orders import arrange_inputs, from_memory_order, input_orders, to_memory_order
from etdev.runtime.native import NativeRuntime
from etdev.runtime.replay import ReplayRuntime
from etdev.runtime.stock import StockRuntime
from program.hand import tensor
from support.files import channels_last, method, program
from support.native import native_host, saved

IMAGE = torch.arange(120.0).reshape(2, 3, 4, 5) / 50

pytest.importorskip("executorch", reason="needs the extra `build`")


def _native() -> NativeRuntime:
    return NativeRuntime(native_host())


RUNTIMES: dict[str, Callable[[], NativeRuntime | StockRuntime | ReplayRuntime]] = {
    "stock": StockRuntime,
    "native": _native,
    "replay": ReplayRuntime,
}


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> Iterator[NativeRuntime | StockRuntime | ReplayRuntime]:
    with RUNTIMES[request.param]() as found:
        yield found


def returning(order: tuple[int, ...], *sizes: int) -> Program:
    """Returns its input."""
    return program(method([replace(tensor(*sizes, at=0), dim_order=order)], [], outputs=(0,), sizes=(4096,)))


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("given", [IMAGE, IMAGE.to(memory_format=torch.channels_last)], ids=["contiguous", "last"])
def test_a_channels_last_input(runtime: NativeRuntime, tmp_path: Path, given: torch.Tensor, planned: bool) -> None:
    runtime.load(saved(channels_last(planned=planned), tmp_path))
    last, plain = runtime.call("forward", (given,))
    torch.testing.assert_close(last, IMAGE.sin())
    torch.testing.assert_close(plain, IMAGE.sin())
    assert torch.equal(last, plain)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_an_input_of_any_order_comes_back(runtime: NativeRuntime, tmp_path: Path, order: tuple[int, ...]) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    runtime.load(saved(returning(order, 2, 3, 4), tmp_path))
    (found,) = runtime.call("forward", (x,))
    assert torch.equal(found, x)


def test_an_input_of_another_rank_is_refused_as_before(runtime: NativeRuntime, tmp_path: Path) -> None:
    runtime.load(saved(channels_last(planned=True), tmp_path))
    with pytest.raises(Exception, match=r"input 0|Error"):
        runtime.call("forward", (IMAGE[0],))


def test_values_without_an_order_stay() -> None:
    plan = method([tensor(2, 3, at=0), m.Int(3)], [], inputs=(0, 1), outputs=(0,))
    orders = input_orders(plan)
    assert orders == ((0, 1), None)
    x = torch.rand(2, 3)
    found, number = arrange_inputs((x, 3), orders)
    assert torch.equal(found, x)
    assert number == 3
    assert arrange_inputs((x, x, 4), orders)[1:] == [x, 4]
    row = x[0]
    assert arrange_inputs((row,), orders)[0] is row


@given(st.permutations(range(4)), st.lists(st.integers(0, 3), min_size=4, max_size=4), st.permutations(range(4)))
def test_there_and_back(shuffled: list[int], sizes: list[int], strides: list[int]) -> None:
    """From tensors with any strides. The bytes are those of a dense tensor in that order."""
    x = torch.rand([sizes[dim] for dim in strides]).permute([strides.index(dim) for dim in range(4)])
    order = tuple(shuffled)
    stored = to_memory_order(x, order)
    assert torch.equal(from_memory_order(stored, order), x)
    assert stored.flatten().tolist() == x.permute(order).flatten().tolist()
    assert stored.is_contiguous()
    assert stored.shape == x.shape
