"""Throughput: how many calls make a task, and which measurements bear a comparison."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etdev.execution.throughput import ThroughputResult, batch_size, compare
from etdev.execution.timing import Thoroughness
from etdev.pipeline.project.machine import Machine

LONG = Thoroughness(seconds=2)
QUIET = Machine(cpu=None, cores=4, load=0.1, system="a system", versions={})


@pytest.mark.parametrize(
    ("seconds", "workers", "thoroughness", "wanted"),
    [
        (24e-6, 1, LONG, 2084),
        (24e-6, 4, LONG, 2084),
        (0.01, 2, LONG, 5),
        (1.0, 2, LONG, 1),
        (0.0, 1, LONG, 50_000_000),
        (24e-6, 1, replace(LONG, seconds=0, calls=1000), 200),
        (24e-6, 4, replace(LONG, seconds=0, calls=1000), 50),
        (24e-6, 4, replace(LONG, seconds=0, calls=6), 1),
    ],
)
def test_a_task_is_long_against_its_way(seconds: float, workers: int, thoroughness: Thoroughness, wanted: int) -> None:
    assert batch_size(seconds, workers, thoroughness) == wanted


def measured(workers: int, rate: float, **more: float) -> ThroughputResult:
    """A measurement of 2 s without a flaw, but for what is given."""
    calls = round(2 * rate)
    values = {"calls_per_task": 10, "busy": 0.97, "spread": 1.1, **more}
    return ThroughputResult(
        workers=workers,
        calls=calls,
        seconds=2.0,
        calls_per_second=rate,
        **values,  # type: ignore[arg-type]
    )


def test_a_comparison_that_the_measurement_bears() -> None:
    two, one = compare([measured(2, 1900), measured(1, 1000)], QUIET)
    assert (one.factor, one.no_factor) == (1.0, None)
    assert (two.factor, two.no_factor) == (1.9, None)
    assert compare([measured(2, 1900)], QUIET)[0].factor is None


@pytest.mark.parametrize(
    ("one", "two", "machine", "words"),
    [
        ({"busy": 0.02}, {}, QUIET, "1 worker spent only 2% of the time in calls, and the rest on transfers"),
        ({}, {"busy": 0.5}, QUIET, "2 workers spent only 50% of the time in calls, and the rest on transfers"),
        ({}, {"spread": 2.0}, QUIET, "some calls of 2 workers took 2.0 times as long as others: the machine is"),
        ({"spread": 9.0}, {}, QUIET, "some calls of 1 worker took 9.0 times as long as others"),
        ({"calls_per_task": 1000}, {}, QUIET, "1 worker had only 2 tasks"),
        ({}, {}, QUIET.model_copy(update={"cores": 1}), "2 workers share 1 core"),
        ({}, {}, QUIET.model_copy(update={"load": 3.9}), "other processes were running before, with a load of 3.9"),
    ],
)
def test_a_comparison_that_the_measurement_does_not_bear(one: dict, two: dict, machine: Machine, words: str) -> None:
    _, found = compare([measured(1, 1000, **one), measured(2, 1900, **two)], machine)
    assert found.factor is None
    assert words in (found.no_factor or "")


def test_more_than_the_workers_can_be_is_not_believed() -> None:
    """96.7 calls a second on one worker, and 1,304 on two."""
    _, found = compare([measured(1, 96.7), measured(2, 1304.0)], QUIET)
    assert found.factor is None
    assert "13.49 times is more than 2 workers can reach" in (found.no_factor or "")
