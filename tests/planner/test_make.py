"""Planners of the user, sizes, effort and determinism."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import etdev
from etdev.planner import Buffer, CollisionError, PlanError, Problem, make_plan
from etdev.planner.kernel import Table
from etdev.planner.occupancy import Occupancy
from etdev.planner.search import search
from etdev.planner.state import State
from etdev.planner.tables import Tables
from planner import truth
from planner.truth import problem
from support.speed import action_time, usual_seconds

PAIR = problem((8, 0, 2), (8, 1, 3))


def chain(count: int, *, long: int = 100) -> Problem:
    """Build a program of ``count`` instructions; each result is used by the next, by one after some, or to the end."""
    draws = random.Random(count)
    rows = []
    for start in range(count):
        life = 2 if draws.random() < 0.8 else draws.randint(2, 40)
        if start % long == 0:
            life = count
        rows.append((16 * draws.randint(1, 1 << draws.randint(0, 12)), start, min(start + life, count + 1)))
    return problem(*rows, alignment=16)


def hill(count: int) -> Problem:
    """Build random sizes and lifetimes, for which no simple order is good."""
    draws = random.Random(count)
    starts = [draws.randrange(count) for _ in range(count)]
    return problem(*((draws.randint(1, 99), start, start + draws.randint(1, count // 4)) for start in starts))


def side_by_side(planned: Problem) -> Sequence[int]:
    """Plan like a planner of a user."""
    return [8 * index for index in range(len(planned.buffers))]


def on_top(planned: Problem) -> Sequence[int]:
    """Plan wrongly."""
    return [0 for _ in planned.buffers]


class Numbers:
    """Sequence of numbers that are not ``int``, as in numpy."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> Any:
        return type("Number", (), {"__index__": lambda _, number=self.numbers[place]: number})()


def test_a_function_plans() -> None:
    plan = make_plan(PAIR, side_by_side)
    truth.check(PAIR, plan)
    assert plan.offsets == (0, 8)
    assert plan.planner == f"{__name__}:side_by_side"
    assert make_plan(PAIR, functools.partial(side_by_side), name="mine").planner == "mine"


def test_numbers_of_any_kind_become_int() -> None:
    offsets = make_plan(PAIR, lambda _: Numbers(8, 0)).offsets  # type: ignore[arg-type,return-value]
    assert offsets == (8, 0)
    assert [type(offset) for offset in offsets] == [int, int]


def test_what_a_function_answers_is_checked() -> None:
    with pytest.raises(CollisionError) as caught:
        make_plan(PAIR, on_top)
    assert str(caught.value).startswith(f"planner {__name__}:on_top: collision at instant 1: buffer 0 at")
    assert (caught.value.first, caught.value.second) == (0, 1)


@pytest.mark.parametrize("answer", [None, (0,), (0, 8.0), (True, 8), 5])
def test_no_plan_at_all(answer: Any) -> None:
    with pytest.raises(PlanError, match=r"^planner mine: "):
        make_plan(PAIR, lambda _: answer, name="mine")


def test_what_a_function_raises_passes_through() -> None:
    error = KeyError("mine")

    def fail(planned: Problem) -> Sequence[int]:
        raise error

    with pytest.raises(KeyError) as caught:
        make_plan(PAIR, fail)
    assert caught.value is error


@pytest.mark.parametrize("name", ["gready", 5, None])
def test_no_planner(name: Any) -> None:
    with pytest.raises(PlanError, match=r"gready|function"):
        make_plan(PAIR, name)


def test_the_built_in_planners_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.planner.make.PLANNERS", {"best": on_top})
    with pytest.raises(CollisionError, match=r"^planner best: collision"):
        make_plan(PAIR)


def test_the_search_makes_hard_problems_smaller() -> None:
    planned = hill(150)
    plan = make_plan(planned)
    truth.check(planned, plan)
    assert plan.size < 0.95 * make_plan(planned, "greedy").size
    assert plan.size < 1.01 * plan.lower_bound


def test_the_search_ends_where_the_plan_fits() -> None:
    planned = hill(150)
    size = make_plan(planned).size
    wide = make_plan(Problem(planned.buffers, capacity=1 << 20))
    truth.check(planned, wide)
    assert size < wide.size < make_plan(planned, "greedy").size
    exact = make_plan(Problem(planned.buffers, capacity=size))
    assert exact.size == size


def test_a_pin_is_kept_by_the_search() -> None:
    planned = Problem((*hill(150).buffers, Buffer(60, 0, 150, 1, 300), Buffer(9, 5, 5, 1, 1 << 20)))
    plan = make_plan(planned)
    truth.check(planned, plan)
    assert plan.offsets[-2:] == (300, 1 << 20)
    assert plan.size < make_plan(planned, "greedy").size


def test_a_chain_meets_its_bound() -> None:
    planned = chain(2000)
    plan = make_plan(planned)
    truth.check(planned, plan)
    assert plan.optimal


DIGEST = """
import hashlib
from planner.test_make import chain, hill
from etdev.planner import PLANNERS, make_plan
plans = [make_plan(planned, name).offsets for planned in (chain(300), hill(60)) for name in sorted(PLANNERS)]
print(hashlib.sha256(repr(plans).encode()).hexdigest())
"""


def test_no_hash_seed_changes_a_plan() -> None:
    tests = str(Path(__file__).parents[1])
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": tests},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64


def test_planning_imports_the_standard_library_only() -> None:
    source = str(Path(etdev.__file__).parents[1])
    script = f"import sys; sys.path.insert(0, {source!r}); import etdev.planner; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    loaded = {name for name in run.stdout.split() if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in loaded if not name.startswith("etdev.planner")} == {"__main__", "etdev", "etdev._version"}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "seconds"), [(5_000, 10), (50_000, 60)])
def test_many_buffers_take_seconds(count: int, seconds: float) -> None:
    """The limits leave room for a busy machine; all pairs of 50,000 buffers would take minutes."""
    planned = chain(count, long=1_000)
    assert usual_seconds(lambda: action_time(lambda: make_plan(planned)), seconds, most=2) < seconds


def mixed(count: int, seed: int = 0) -> Problem:
    """Buffers of all sizes, alignments and lifetimes, for which no plan meets the lower bound."""
    draws = random.Random(seed)
    buffers = []
    for _ in range(count):
        start = draws.randrange(count)
        life = 1 + int(draws.expovariate(1 / 8)) if draws.random() > 0.02 else draws.randint(1, count // 20)
        size = draws.randint(1, 1 << draws.randint(4, 18))
        buffers.append(Buffer(size, start, min(start + life, count), 1 << draws.randint(0, 8)))
    return Problem(tuple(buffers))


def test_no_search_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later attempt at the same capacity continues where the earlier one ended."""
    searched: list[tuple[object, ...]] = []

    def counted(tables: Tables, state: State, rank: Table, *settings: int) -> int:
        *rule, most_nodes, _ = settings
        searched.append((id(tables), tuple(rank), *rule, most_nodes))
        return search(tables, state, rank, *settings)

    monkeypatch.setattr("etdev.planner.restarts.search", counted)
    monkeypatch.setattr("etdev.planner.best._BRIEF_STEPS", 10_000)
    monkeypatch.setattr("etdev.planner.best._STEPS_PER_PAIR", 50)
    plan = make_plan(mixed(100))

    assert plan.size > plan.lower_bound
    assert len(searched) > 5
    assert len(set(searched)) == len(searched)


@pytest.mark.slow
def test_three_thousand_buffers_of_mixed_alignments_take_less_than_20_s() -> None:
    assert usual_seconds(lambda: action_time(lambda: make_plan(mixed(3_000))), 20, most=2) < 20


def stairs(count: int) -> Problem:
    """Build buffers that each start and end after the one before, so that few ranges ever join."""
    return problem(*((16 * (1 + index % 1_000), index, index + 500) for index in range(count)), alignment=16)


def test_what_is_left_when_the_steps_run_out_is_placed_above_all_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    used = Occupancy.used

    def counted(self: Occupancy, index: int) -> list[tuple[int, int]]:
        found = used(self, index)
        looked.append(len(found))
        return found

    monkeypatch.setattr(Occupancy, "used", counted)
    monkeypatch.setattr("etdev.planner.best.ORDER_STEPS", 1_000)
    monkeypatch.setattr("etdev.planner.best.PLACING_STEPS", 1_000)
    monkeypatch.setattr("etdev.planner.best._ALL_STEPS", 10_000)
    make_plan(stairs(2_000))
    # Ranges of a node join when the steps run out; then they are at most as many as nodes of a cover and above it.
    assert max(looked[-200:]) <= 60 < max(looked)


@pytest.mark.slow
@pytest.mark.parametrize("count", [200_000])
def test_stairs_end(count: int) -> None:
    assert usual_seconds(lambda: action_time(lambda: make_plan(stairs(count))), 120, most=2) < 120
