"""Memory and time are proportional to the number of instructions."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest

from etdev.linker import LinkOptions, link_foreign
from etdev.program import model as m
from linker.programs import Method, program
from validator.test_proofs import check, proof


def moves(count: int) -> Method:
    """Add a chain in which each value becomes the tensor of the previous one."""
    method = Method()
    values = [method.input(64), *(method.tensor(64) for _ in range(count))]
    for one, other in pairwise(values):
        method.move(one, other)
    method.outputs = values[-1:]
    return method


def kernels(count: int) -> Method:
    """Add a chain in which each kernel reads the output of the previous one."""
    method = Method()
    value = method.input(64)
    for _ in range(count):
        value = method.op(value, nbytes=64, name="aten::relu.out")
    method.outputs = [value]
    return method


def jumps(count: int) -> Method:
    """Add kernels, with jumps to the next instruction between them."""
    method = Method()
    value, always = method.input(64), method.value(m.Bool(True))
    for _ in range(count):
        value = method.op(value, nbytes=64, name="aten::relu.out")
        method.calls.append(m.JumpFalseCall(always, len(method.calls) + 1))
    method.outputs = [value]
    return method


def conds(count: int) -> Method:
    """Add branches of six instructions, each of which reads the result of the previous one."""
    method = Method()
    value, condition = method.input(64), method.input(1)

    def side() -> list[int]:
        return [method.op(value, nbytes=64, name="aten::relu.out")]

    for _ in range(count // 6):
        (value,) = method.cond(condition, side, side)
    method.outputs = [value]
    return method


def slices(count: int) -> Method:
    """Add slices of one tensor, each of which a kernel reads."""
    method = Method()
    whole = method.vector(8 * count)
    method.kernel("aten::relu.out", method.input(64), whole, whole)
    value = whole
    for number in range(count // 2):
        part = method.cut_out(whole, 16 * number, 16 * number + 16)
        value = method.op(part, nbytes=16, name="aten::relu.out")
    method.outputs = [value]
    return method


KINDS = [moves, kernels, jumps, conds, slices]


def link_and_prove(whole: m.Program) -> None:
    """Link a program, and prove the link."""
    linked = link_foreign(whole, LinkOptions(planner="naive"))
    check(proof(whole, linked, {"forward": {}}, foreign=True))


def peak(kind: Callable[[int], Method], count: int) -> int:
    """Return the peak of allocated bytes while a program of so many instructions is linked and proved."""
    whole = program(kind(count)).program
    tracemalloc.start()
    try:
        link_and_prove(whole)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds(kind: Callable[[int], Method], count: int) -> float:
    """Return the processor time in which a program of so many instructions is linked and proved."""
    whole = program(kind(count)).program
    start = time.process_time()
    link_and_prove(whole)
    return time.process_time() - start


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_memory_grows_with_the_instructions_and_not_with_their_square(kind: Callable[[int], Method]) -> None:
    peak(kind, 10)  # What is imported or made once counts for neither.
    assert peak(kind, 1_600) < 6 * peak(kind, 400)


@pytest.mark.parametrize(("kind", "count"), [(conds, 10_000), (slices, 20_000)], ids=["conds", "slices"])
def test_many_instructions_take_less_than_20_s(kind: Callable[[int], Method], count: int) -> None:
    """They take a third of that."""
    assert seconds(kind, count) < 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fifty_thousand_instructions_take_less_than_500_mb(kind: Callable[[int], Method]) -> None:
    assert peak(kind, 50_000) < 500_000_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fifty_thousand_instructions_take_less_than_30_s(kind: Callable[[int], Method]) -> None:
    assert seconds(kind, 50_000) < 30
