"""Published problems, stored outside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.planner import Problem, make_plan
from etdev.planner.csvfile import read_buffers
from etdev.planner.kernel import compiled_runner
from planner import truth

CAPACITY = 1_048_576
"""Bytes that suffice for each of the problems of MiniMalloc."""


def load(shared: Path, name: str, capacity: int | None = None) -> Problem:
    path = shared / "data" / "planner" / f"{name}.csv"
    if not path.is_file():
        pytest.skip(f"there is no file {path}: set ETDEV_SHARED")
    return Problem(tuple(read_buffers(path.read_text().splitlines())), capacity)


@pytest.mark.parametrize("letter", "AGHK")
def test_the_easier_ones_of_minimalloc_fit(shared: Path, letter: str) -> None:
    planned = load(shared, f"minimalloc-{letter}.1048576", CAPACITY)
    plan = make_plan(planned)
    truth.check(planned, plan)
    assert plan.size <= CAPACITY


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("letter", "BDEJ")
def test_the_harder_ones_of_minimalloc_fit(shared: Path, letter: str) -> None:
    if letter in "EJ" and compiled_runner() is None:
        pytest.skip("numba is not installed: in Python this one takes minutes")
    planned = load(shared, f"minimalloc-{letter}.1048576", CAPACITY)
    plan = make_plan(planned)
    truth.check(planned, plan)
    assert plan.size <= CAPACITY


@pytest.mark.slow
@pytest.mark.parametrize(("letter", "size"), [("D", 1_085_440), ("J", 1_054_720)])
def test_the_steps_of_all_searches_are_enough_without_a_capacity(shared: Path, letter: str, size: int) -> None:
    planned = load(shared, f"minimalloc-{letter}.1048576")
    assert make_plan(planned).size <= size


def test_a_trace_of_xla_meets_its_bound(shared: Path) -> None:
    planned = load(shared, "xla-G_1")
    plan = make_plan(planned)
    truth.check(planned, plan)
    assert plan.optimal
