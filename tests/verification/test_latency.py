"""The check *latency*: calls measured in the stock runtime, and judged by the config (E2)."""

from __future__ import annotations

import pytest

from etdev.execution.timing import Thoroughness
from etdev.verification.checks import latency
from support.verification import Prepared

GENEROUS = 'targets.cpu.budget.latency={ p50 = "10 s", p99 = "1 min" }'


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "Thoroughness", lambda: Thoroughness(warmup=1, calls=6, seconds=0))


def test_a_limit_that_holds(linear: Prepared) -> None:
    check = linear.judge(GENEROUS)["latency"]

    assert check.status == "passed"
    assert check.latency is not None
    assert (check.latency.calls, check.value) == (6, None)
    assert 0 < check.latency.min <= check.latency.p50 <= check.latency.p99 <= check.latency.max < 10
    first, second = check.summary.split(", ", 1)
    assert first.startswith("p50 ")
    assert first.endswith(" of 10.0 s")
    assert "p99 " in second
    assert "(6 calls of 'forward'" in second


def test_a_limit_that_is_missed_is_a_gate(linear: Prepared) -> None:
    checks = linear.judge("targets.cpu.budget.latency.p95=1e-9")
    check = checks["latency"]

    assert (check.status, check.gate, checks["runtime"].status) == ("failed", True, "passed")
    assert check.problems[0].startswith("p95 of a call of 'forward': ")
    assert " more than budget.latency.p95 (0.00 µs)" in check.problems[0]
    assert str(check.where).endswith("(targets.cpu.budget.latency.p95)")
    assert check.hint == (
        "measure more calls (`etdev bench`), let delegates take more ops (partitioners), or raise budget.latency"
    )


def test_what_the_stock_runtime_cannot_run_is_not_measured(linear: Prepared) -> None:
    checks = linear.judge(GENEROUS, delegates={"forward": frozenset({"NoBackend"})})

    assert (checks["latency"].status, checks["latency"].summary) == ("not run", checks["runtime"].summary)
    assert "NoBackend" in checks["latency"].summary


def test_a_program_that_is_wrong_is_not_measured(linear: Prepared, other: Prepared) -> None:
    checks = linear.judge(GENEROUS, path=other.candidate.path)

    assert (checks["runtime"].status, checks["runtime"].gate) == ("failed", False)
    assert (checks["latency"].status, checks["latency"].summary) == ("not run", "the check `runtime` failed")
