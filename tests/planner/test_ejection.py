"""Ejection chains."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.planner import Buffer, Problem
from etdev.planner.bounds import lower_bound
from etdev.planner.strips.ejection import EjectionChains
from planner import truth

LIFETIMES = st.tuples(st.integers(1, 9), st.integers(0, 12), st.integers(1, 8))
"""Size, start and length."""


def stacked(buffers: list[Buffer]) -> list[int]:
    """A plan in which no two buffers share bytes."""
    return [sum(buffer.size for buffer in buffers[:index]) for index in range(len(buffers))]


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(LIFETIMES, min_size=1, max_size=12), spare=st.integers(0, 6))
def test_a_plan_that_is_found_fits(rows: list[tuple[int, int, int]], spare: int) -> None:
    buffers = [Buffer(size, start, start + length, 1) for size, start, length in rows]
    problem = Problem(tuple(buffers))
    chains = EjectionChains(buffers, before := stacked(buffers))
    capacity = lower_bound(problem) + spare
    is_found = chains.fit(capacity, 5_000)

    assert not truth.flaws(problem, chains.offsets)
    assert chains.size == truth.size(problem, chains.offsets)
    assert chains.size <= capacity if is_found else chains.offsets == before


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(LIFETIMES, min_size=2, max_size=12))
def test_no_plan_fits_below_the_bound(rows: list[tuple[int, int, int]]) -> None:
    buffers = [Buffer(size, start, start + length, 1) for size, start, length in rows]
    capacity = lower_bound(Problem(tuple(buffers))) - 1
    if capacity >= max(buffer.size for buffer in buffers):
        assert not EjectionChains(buffers, stacked(buffers)).fit(capacity, 1_000)


def test_the_steps_are_limited() -> None:
    buffers = [Buffer(size, 0, 2, 1) for size in (3, 5, 7)]
    chains = EjectionChains(buffers, stacked(buffers))

    assert not chains.fit(14, 1_000)
    assert 1_000 <= chains.steps < 1_000 + len(buffers)


def test_chains_find_the_smallest_plan_of_many_buffers() -> None:
    draws = Random(5)
    buffers = []
    for _ in range(300):
        start = draws.randrange(100)
        buffers.append(Buffer(draws.choice([5, 8, 13]), start, start + draws.randint(1, 30), 1))
    bound = lower_bound(Problem(tuple(buffers)))
    chains = EjectionChains(buffers, stacked(buffers))
    while chains.size > bound and chains.fit(max(bound, min(chains.size - 1, int(1.02 * bound))), 20_000_000):
        pass

    assert chains.size < 1.01 * bound
