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
from support.speed import usual_seconds
from validator.test_proofs import check, proof

pytestmark = pytest.mark.integration


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


def live_conds(count: int) -> Method:
    """Add branches of six instructions, whose results are all outputs."""
    method = Method()
    method.outputs = live_results(method, count // 6)
    return method


def live_results(method: Method, count: int, results: int = 1) -> list[int]:
    """Add branches with so many results each, and return all results."""
    value, condition = method.input(64), method.input(1)

    def side() -> list[int]:
        return [method.op(value, nbytes=64, name="aten::relu.out") for _ in range(results)]

    return [result for _ in range(count) for result in method.cond(condition, side, side)]


def live_pairs(count: int) -> Method:
    """Add branches of ten instructions with two results each, which are all outputs."""
    method = Method()
    method.outputs = live_results(method, count // 10, 2)
    return method


def joined_conds(count: int) -> Method:
    """Add branches of six instructions, and one instruction that reads all results."""
    method = Method()
    results = live_results(method, count // 6)
    method.outputs = [method.cat(*results, nbytes=64 * len(results))]
    return method


def viewed_conds(count: int) -> Method:
    """Add branches of six instructions, and then a view of each result, which a kernel reads."""
    method = Method()
    results = live_results(method, count // 8)
    method.outputs = [method.op(method.view(result), nbytes=64, name="aten::relu.out") for result in results]
    return method


def views(count: int) -> Method:
    """Add views of an input that the caller owns, each of which a kernel reads."""
    method = Method()
    value = method.input(64, planned=False)
    method.outputs = [method.op(method.view(value), nbytes=64, name="aten::relu.out") for _ in range(count // 2)]
    return method


def parts(count: int) -> Method:
    """Add kernels, and one ``cat`` of all their outputs."""
    method = Method()
    value = method.vector(16)
    method.inputs.append(value)
    found = [method.vector(16) for _ in range(count)]
    for part in found:
        method.kernel("aten::relu.out", value, part, part)
    method.outputs = [method.put_together(*found)]
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


KINDS = [
    moves,
    kernels,
    jumps,
    conds,
    live_conds,
    live_pairs,
    joined_conds,
    viewed_conds,
    views,
    parts,
    slices,
]


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


# The search for an order takes all its steps on `views`, whatever their number, and ten times as long with a trace.
@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in (moves, conds, viewed_conds, slices) else pytest.param(kind, marks=pytest.mark.slow)
        for kind in KINDS
        if kind is not views
    ],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.sampled(2)
def test_memory_grows_with_the_instructions_and_not_with_their_square(kind: Callable[[int], Method]) -> None:
    peak(kind, 10)  # What is imported or made once counts for neither.
    assert peak(kind, 800) < 6 * peak(kind, 200)


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (conds, 5_000),
        pytest.param(live_conds, 5_000, marks=pytest.mark.slow),
        (viewed_conds, 4_000),
        (views, 6_000),
        pytest.param(slices, 10_000, marks=pytest.mark.slow),
    ],
    ids=["conds", "live_conds", "viewed_conds", "views", "slices"],
)
@pytest.mark.nightly
def test_many_instructions_take_less_than_10_s(kind: Callable[[int], Method], count: int) -> None:
    """They take a third of that on an idle machine."""
    assert usual_seconds(lambda: seconds(kind, count), 10, most=2) < 10


@pytest.mark.slow
@pytest.mark.timeout(1800)  # Allocations are traced, which takes ten times as long.
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fifty_thousand_instructions_take_less_than_500_mb(kind: Callable[[int], Method]) -> None:
    assert peak(kind, 50_000) < 500_000_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not viewed_conds], ids=lambda kind: kind.__name__)
def test_fifty_thousand_instructions_take_less_than_30_s(kind: Callable[[int], Method]) -> None:
    assert usual_seconds(lambda: seconds(kind, 50_000), 30, most=2) < 30


@pytest.mark.slow
def test_fifty_thousand_instructions_that_are_linked_in_two_ways_take_less_than_60_s() -> None:
    """A view of one of several tensors may cost memory, so the linker tries both with and without such views."""
    assert usual_seconds(lambda: seconds(viewed_conds, 50_000), 60, most=2) < 60
