"""Check *accuracy* on workers: the same value, whoever computes the outputs (D1, E4)."""

from __future__ import annotations

import pytest

from etdev.errors import VerifyError
from etdev.pipeline.results.result import CheckResult
from support.projects import LINEAR, LINEAR_CONFIG
from support.verification import Prepared, prepare

pytestmark = pytest.mark.integration

_COUNTER = """
    import torch
    from torch import nn

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(2, 32))

        def forward(self, x):
            self.total.add_(x)
            return self.total * 1
"""
_DATA = """
    import torch

    def samples():
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(2, 32, generator=generator),) for _ in range(7)]

    def weighted(outputs):
        return float(sum((place + 1) * one.double().abs().sum() for place, (one,) in enumerate(outputs)))

    def mapped(run):
        return weighted(run.map(samples()))

    def called(run):
        return weighted(run(*sample) for sample in samples())

    def both(run):
        return sum(one.equal(run(*sample)[0]) for sample, (one,) in zip(samples(), run.map(samples())))

    def twice(run):
        return sum(one.equal(other) for (one,), (other,) in zip(run.map(samples()), run.map(samples())))

    def first(run):
        return next(run.method("forward").map(samples()))[0].double().sum()

    def wrong_input(run):
        return len(list(run.map([*samples(), (torch.zeros(2, 31),)])))
"""
_TARGETS = """
    [targets.cpu]
    lowering = "stock"
"""


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Keeps no state."""
    return prepare(tmp_path_factory.mktemp("linear"), "cpu", LINEAR_CONFIG + _TARGETS, model=LINEAR, data=_DATA)


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Each call follows from those before it."""
    config = LINEAR_CONFIG.replace("Linear", "Counter") + _TARGETS
    return prepare(tmp_path_factory.mktemp("counter"), "cpu", config, model=_COUNTER, data=_DATA)


def measure(program: Prepared, fn: str, jobs: int) -> CheckResult:
    return program.judge(f'targets.cpu.verify.accuracy={{ fn = "data:{fn}", max = 1e9 }}', jobs=jobs)["accuracy"]


@pytest.mark.parametrize(
    ("fn", "total", "jobs"),
    [
        ("mapped", 7, 1),
        pytest.param("mapped", 7, 2, marks=pytest.mark.slow),
        ("called", None, 1),
        ("twice", 14, 1),
    ],
)
def test_each_call_of_a_metric_is_told(linear: Prepared, fn: str, total: int | None, jobs: int) -> None:
    told: list[tuple[int, int | None]] = []
    override = f'targets.cpu.verify.accuracy={{ fn = "data:{fn}", max = 1e9 }}'
    linear.judge(override, jobs=jobs, count=lambda *state: told.append(state))
    assert told == [(number, total) for number in range(1, len(told) + 1)]
    assert len(told) == (total or 7)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        ("both", 7),
        ("mapped", None),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("twice", 7), ("first", None))),
    ],
)
@pytest.mark.sampled(1)
def test_workers_give_the_same_value(linear: Prepared, fn: str, expected: float | None) -> None:
    alone, on_two = measure(linear, fn, 1), measure(linear, fn, 2)

    assert (alone.status, on_two.status) == ("passed", "passed")
    assert alone.value
    assert expected in (None, alone.value)
    assert on_two.value == alone.value
    assert on_two.summary == f"{alone.summary}, on 2 workers"


def test_a_metric_that_calls_the_program_itself_needs_no_worker(linear: Prepared) -> None:
    alone, on_two = measure(linear, "called", 1), measure(linear, "called", 2)

    assert on_two.value == alone.value == measure(linear, "mapped", 1).value
    assert on_two.summary == f"{alone.summary}; --jobs has no effect: the metric does not call `run.map`"


def test_a_program_that_keeps_state_has_no_workers(counter: Prepared) -> None:
    alone, on_two = measure(counter, "mapped", 1), measure(counter, "mapped", 2)

    assert on_two.value == alone.value
    assert on_two.summary == f"{alone.summary}; --jobs has no effect: the program keeps state from call to call"


def test_the_replay_has_no_workers(linear: Prepared) -> None:
    operators = {"forward": ("aten::nowhere.out",)}
    config = 'targets.cpu.verify.accuracy={ fn = "data:mapped", max = 1e9 }'
    check = linear.judge(config, jobs=2, operators=operators)["accuracy"]
    assert check.summary.endswith(
        ", computed by the replay; --jobs has no effect: the replay runs the program in one process"
    )


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_wrong_sample_is_named_on_workers_too(linear: Prepared, jobs: int) -> None:
    with pytest.raises(VerifyError) as caught:
        measure(linear, "wrong_input", jobs)
    assert "method 'forward' does not accept these inputs: input 'x' has the shape [2, 31]" in caught.value.message
