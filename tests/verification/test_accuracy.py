"""Check *accuracy*: the config's own metric, which calls the built program."""

from __future__ import annotations

import pytest

from etdev.errors import LoadError, VerifyError
from etdev.pipeline.results.result import CheckResult, outcome
from support.verification import Prepared


def measure(program: Prepared, fn: str, limits: str) -> CheckResult:
    return program.judge(f'targets.cpu.verify.accuracy={{ fn = "data:{fn}", {limits} }}')["accuracy"]


@pytest.mark.parametrize(
    ("fn", "limits", "summary"),
    [
        ("right", "min = 0.5", "data:right = 0.5 (at least 0.5)"),
        ("right", "max = 0.5", "data:right = 0.5 (at most 0.5)"),
        ("right", "min = 0.25, max = 1", "data:right = 0.5 (at least 0.25 and at most 1)"),
        ("tensor", "min = 0.5", "data:tensor = 0.5 (at least 0.5)"),
    ],
)
def test_a_metric_within_its_limits(linear: Prepared, fn: str, limits: str, summary: str) -> None:
    check = measure(linear, fn, limits)

    assert (check.status, check.value, check.summary) == ("passed", 0.5, summary)


@pytest.mark.parametrize(
    ("fn", "limits", "summary"),
    [
        ("right", "min = 0.51", "data:right returned 0.5, but the config requires at least 0.51"),
        ("right", "max = 0.49", "data:right returned 0.5, but the config requires at most 0.49"),
        ("nan", "min = 0.0", "data:nan returned nan, but the config requires at least 0"),
        ("nan", "max = 9", "data:nan returned nan, but the config requires at most 9"),
        ("infinite", "max = 9", "data:infinite returned inf, but the config requires at most 9"),
    ],
)
def test_a_missed_limit_is_a_gate(linear: Prepared, fn: str, limits: str, summary: str) -> None:
    check = measure(linear, fn, limits)

    assert (check.status, check.gate, check.summary) == ("failed", True, summary)
    assert check.where is not None
    assert check.where.endswith(f"(targets.cpu.verify.accuracy.{limits[:3]})")
    assert check.hint is not None
    assert check.hint.startswith("check the metric's data")
    assert outcome((check,)) == "gate failed"
    assert CheckResult.model_validate_json(check.model_dump_json()) == check


def test_an_infinite_metric_can_be_reported(linear: Prepared) -> None:
    """JSON has no infinity: the report was not equal to the result."""
    check = measure(linear, "infinite", "min = 1")

    assert (check.status, check.value) == ("passed", None)
    assert CheckResult.model_validate_json(check.model_dump_json()) == check


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        ("text", "'data:text' returned str, not a number"),
        ("truth", "'data:truth' returned bool, not a number"),
        ("many", "'data:many' returned Tensor of shape [3], not a number"),
        ("broken", "'data:broken' failed: KeyError: 'missing' (data.py:"),
        (
            "wrong_input",
            "method 'forward' does not accept these inputs: input 'x' has the shape [2, 31], but is declared as",
        ),
        ("no_method", "the program has no method 'backward'; its methods are forward"),
    ],
)
def test_a_metric_that_fails_is_an_error_at_its_key(linear: Prepared, fn: str, said: str) -> None:
    """A tensor of several elements ended as "a bug in etdev"."""
    with pytest.raises(VerifyError) as caught:
        measure(linear, fn, "min = 0")
    assert said in caught.value.message
    assert caught.value.where is not None
    assert caught.value.where.endswith("(targets.cpu.verify.accuracy.fn)")


def test_a_metric_that_does_not_exist(linear: Prepared) -> None:
    with pytest.raises(LoadError, match="did you mean 'right'"):
        measure(linear, "rigth", "min = 0")


@pytest.mark.parametrize(
    ("limits", "status", "text"),
    [
        ("max_drop = 1", "passed", "data:better_in_float = 0 (at most 1 below the float model's 1)"),
        ("max_rise = 0", "passed", "data:better_in_float = 0 (at most 0 above the float model's 1)"),
        (
            "min = 0, max_drop = 0.5",
            "failed",
            (
                "data:better_in_float returned 0, but the config requires at least 0 and at most 0.5 below the float "
                "model's 1"
            ),
        ),
    ],
)
def test_the_metric_of_the_float_model(linear: Prepared, limits: str, status: str, text: str) -> None:
    """The function is also called with the float model, which computes the same outputs here."""
    check = measure(linear, "better_in_float", limits)
    assert (check.status, check.gate, check.summary) == (status, status == "failed", text)
    if status == "failed":
        assert check.where is not None
        assert check.where.endswith("(targets.cpu.verify.accuracy.max_drop)")
