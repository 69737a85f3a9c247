"""The rung *latency*: calls measured in the stock runtime, and judged by the config (E2)."""

from __future__ import annotations

import pytest

from etdev.pipeline.latency import Thoroughness
from etdev.pipeline.verify import latency
from support.verification import Prepared

GENEROUS = 'targets.cpu.budget.latency={ p50 = "10 s", p99 = "1 min" }'


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "Thoroughness", lambda: Thoroughness(warmup=1, calls=6, seconds=0))


def test_a_limit_that_holds(linear: Prepared) -> None:
    rung = linear.judge(GENEROUS)["latency"]

    assert rung.status == "passed"
    assert rung.latency is not None
    assert (rung.latency.calls, rung.value) == (6, None)
    assert 0 < rung.latency.min <= rung.latency.p50 <= rung.latency.p99 <= rung.latency.max < 10
    first, second = rung.summary.split(", ", 1)
    assert first.startswith("p50 ")
    assert first.endswith(" of 10.0 s")
    assert "p99 " in second
    assert "(6 calls of 'forward'" in second


def test_a_limit_that_is_missed_is_a_gate(linear: Prepared) -> None:
    rungs = linear.judge("targets.cpu.budget.latency.p95=1e-9")
    rung = rungs["latency"]

    assert (rung.status, rung.gate, rungs["runtime"].status) == ("failed", True, "passed")
    assert rung.problems[0].startswith("p95 of a call of 'forward': ")
    assert " more than budget.latency.p95 (0.00 µs)" in rung.problems[0]
    assert str(rung.where).endswith("(targets.cpu.budget.latency.p95)")
    assert rung.hint == (
        "measure it at length (`etdev bench`), let delegates take more ops (partitioners), or raise budget.latency"
    )


def test_what_the_stock_runtime_cannot_run_is_not_measured(linear: Prepared) -> None:
    rungs = linear.judge(GENEROUS, delegates={"forward": frozenset({"NoBackend"})})

    assert (rungs["latency"].status, rungs["latency"].summary) == ("not run", rungs["runtime"].summary)
    assert "NoBackend" in rungs["latency"].summary


def test_a_program_that_is_wrong_is_not_measured(linear: Prepared, other: Prepared) -> None:
    rungs = linear.judge(GENEROUS, path=other.candidate.path)

    assert (rungs["runtime"].status, rungs["runtime"].gate) == ("failed", False)
    assert (rungs["latency"].status, rungs["latency"].summary) == ("not run", "the rung `runtime` failed")
