"""Placement in strips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.planner import Buffer, Problem, make_plan
from etdev.planner.bounds import lower_bound
from etdev.planner.strips import Strips
from planner import truth
from planner.strategies import problems
from planner.truth import problem


def place_in_strips(buffers: Sequence[Buffer]) -> list[int] | None:
    return next(Strips(buffers).plans(), None)


def occupying(planned: Problem) -> Problem:
    """Leave out the buffers that are never in use, and make the others so large that alignment adds little."""
    return Problem(tuple(replace(b, size=400 * b.size + b.size % 5) for b in planned.buffers if b.occupies))


@settings(max_examples=200, deadline=None)
@given(planned=problems(pins=False).map(occupying).filter(lambda planned: bool(planned.buffers)))
def test_all_plans_are_right(planned: Problem) -> None:
    plans = list(islice(Strips(planned.buffers).plans(), 8))
    assert len(plans) >= 2
    for plan in plans:
        assert not truth.flaws(planned, plan)


def test_plans_around_the_largest_buffers_may_be_smaller() -> None:
    draws = Random(11)
    buffers = []
    for size in (608, 171, 131, 25, 21, 15, 12, 8):
        for _ in range(60):
            start = draws.randrange(480)
            buffers.append(Buffer(16 * size, start, start + draws.randint(10, 240)))
    planned = Problem(tuple(buffers))
    forwards, backwards, *around = [truth.size(planned, plan) for plan in Strips(planned.buffers).plans()]
    assert min(around) < 0.995 * min(forwards, backwards)


@settings(max_examples=50, deadline=None)
@given(planned=problems(pins=False).map(occupying).filter(lambda planned: bool(planned.buffers)))
def test_only_the_order_of_instants_matters(planned: Problem) -> None:
    moved = [replace(b, start=10 * b.start - 700, end=10 * b.end - 700) for b in planned.buffers]
    plans, found = (list(islice(Strips(buffers).plans(), 8)) for buffers in (planned.buffers, moved))
    assert found == plans


@settings(max_examples=50, deadline=None)
@given(lifetimes=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=1, max_size=60))
def test_buffers_of_one_size_meet_the_bound(lifetimes: list[tuple[int, int]]) -> None:
    planned = problem(*((24, start, start + length) for start, length in lifetimes), alignment=8)
    found = place_in_strips(planned.buffers)
    assert found is not None
    assert truth.size(planned, found) == lower_bound(planned)


@pytest.mark.parametrize(
    "others",
    [
        [(16, 3, 5), (16, 3, 5), (16, 4, 5)],  # Above each other, between two tall buffers.
        [(20, 3, 4), (20, 4, 5), (28, 3, 5)],  # The rest above a buffer, for another size.
        [(48, 2, 3), (48, 5, 6)],  # Before and after.
    ],
)
def test_smaller_buffers_fill_the_gaps(others: list[tuple[int, int, int]]) -> None:
    planned = problem((48, 0, 3), (48, 5, 8), *others)
    found = place_in_strips(planned.buffers)
    assert found is not None
    assert truth.size(planned, found) == max(48, lower_bound(planned))


@pytest.mark.parametrize(
    "buffers",
    [
        [Buffer(8, 0, 2, pin=16), Buffer(8, 1, 3)],
        [Buffer(16 * size, 0, 2) for size in range(1, 200)],
        [Buffer(16, 0, 2), Buffer(64, 0, 2, alignment=4096)],
    ],
    ids=["pins", "many sizes", "large alignment"],
)
def test_not_every_problem_suits(buffers: list[Buffer]) -> None:
    assert place_in_strips(buffers) is None


@pytest.mark.parametrize("count", [3_000, 6_000])
def test_long_and_short_lifetimes(count: int) -> None:
    """Three of ten buffers live long. Placed one by one, they need more than the bound in any order."""
    draws = Random(count)
    buffers = []
    for _ in range(count):
        start = draws.randrange(count)
        length = draws.randint(count // 50, count // 2) if draws.random() < 0.3 else 1 + int(draws.expovariate(1 / 6))
        buffers.append(Buffer(512 * draws.choice([1, 3, 20, 45, 360, 1_000]), start, start + length))
    planned = Problem(tuple(buffers))
    assert make_plan(planned).size == lower_bound(planned)
