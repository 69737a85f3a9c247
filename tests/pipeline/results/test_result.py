"""``BuildResult``: what becomes of an artifact, the exit codes, and the way to JSON and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.config.check_names import BUILT_IN
from etdev.decisions import Elision, InPlace
from etdev.errors import ExitCode
from etdev.pipeline.results.decision_counts import KINDS, count_copies, count_inplace
from etdev.pipeline.results.result import (
    BuildResult,
    CheckResult,
    MethodResult,
    OutputError,
    TargetResult,
    UndelegatedOps,
    outcome,
)


def check(name: str, status: str, **fields: Any) -> CheckResult:
    return CheckResult(name=name, status=status, summary=fields.pop("summary", "why"), **fields)


def target(name: str = "cpu", *checks: CheckResult, required: tuple[str, ...] = (), **fields: Any) -> TargetResult:
    settings: dict[str, Any] = {"artifact": f"build/{name}/m.pte", "size": 1, "sha256": "", "quantize": None}
    return TargetResult(name=name, status=outcome(checks), checks=checks, required=required, **(settings | fields))


def build(*targets: TargetResult) -> BuildResult:
    return BuildResult(project="m", config="/project/etdev.toml", versions={"etdev": "1"}, targets=targets)


GOOD = check("runtime", "passed")
GATE = check("accuracy", "failed", gate=True, problems=("low",))
BROKEN = check("kernels", "failed", problems=("none",))
SKIPPED = check("device", "not run")


@pytest.mark.parametrize(
    ("checks", "required", "status", "code"),
    [
        pytest.param((GOOD, SKIPPED), (), "built", ExitCode.DONE, id="good"),
        pytest.param((GOOD, GATE), (), "gate failed", ExitCode.GATE_FAILED, id="a gate"),
        pytest.param((GATE, BROKEN), (), "rejected", ExitCode.BUILD_FAILED, id="broken outweighs a gate"),
        pytest.param((GOOD, SKIPPED), ("device",), "built", ExitCode.ENVIRONMENT, id="a required check did not run"),
        pytest.param((GOOD, SKIPPED), ("runtime",), "built", ExitCode.DONE, id="a required check ran"),
        pytest.param((GATE, SKIPPED), ("device",), "gate failed", ExitCode.ENVIRONMENT, id="unmet outweighs a gate"),
        pytest.param((BROKEN, SKIPPED), ("device",), "rejected", ExitCode.BUILD_FAILED, id="broken outweighs unmet"),
        pytest.param((BROKEN,), ("kernels",), "rejected", ExitCode.BUILD_FAILED, id="required and failed"),
    ],
)
def test_what_the_checks_make_of_a_target(
    checks: tuple[CheckResult, ...], required: tuple[str, ...], status: str, code: ExitCode
) -> None:
    result = target("cpu", *checks, required=required)

    assert (result.status, result.exit_code) == (status, code)


@pytest.mark.parametrize(
    ("targets", "code"),
    [
        ((target("a", GOOD), target("b", GOOD)), 0),
        ((target("a", GOOD), target("b", GATE)), 1),
        ((target("a", GATE), target("b", SKIPPED, required=("device",))), 3),
        ((target("a", BROKEN), target("b", SKIPPED, required=("device",)), target("c", GATE)), 4),
    ],
)
def test_the_worst_target_decides(targets: tuple[TargetResult, ...], code: int) -> None:
    for order in (targets, targets[::-1]):
        result = build(*order)
        assert result.exit_code == code
        assert result.ok == (code == 0)


def test_targets_are_found_by_name() -> None:
    result = build(target("a"), target("b", artifact="/elsewhere/m.pte"))

    assert result["b"].name == "b"
    assert result.path("a") == Path("/project/build/a/m.pte")
    assert result.path("b") == Path("/elsewhere/m.pte")
    with pytest.raises(KeyError, match="c"):  # It was StopIteration, which ends a caller's generator silently.
        result["c"]


numbers = st.floats(allow_nan=False, allow_infinity=False)
outputs = st.builds(
    OutputError,
    method=st.text(max_size=5),
    output=st.integers(0, 9),
    dtype=st.just("float32"),
    max_abs_error=numbers,
    allowed=numbers,
    snr_db=st.none() | numbers,
    float_snr_db=st.none() | numbers,
    varying_snr_db=st.none() | numbers,
)
checks = st.builds(
    CheckResult,
    name=st.sampled_from([*BUILT_IN]),
    status=st.sampled_from(["passed", "failed", "not run"]),
    summary=st.text(max_size=9),
    gate=st.booleans(),
    problems=st.lists(st.text(max_size=9), max_size=2).map(tuple),
    outputs=st.lists(outputs, max_size=2).map(tuple),
    value=st.none() | numbers,
)


elisions = st.builds(
    Elision,
    instruction=st.integers(0, 99),
    operator=st.text(max_size=5),
    action=st.sampled_from(["alias", "placed", "kept"]),
    nbytes=st.integers(0, 99),
    reason=st.sampled_from(["", "one", "another"]),
    kind=st.sampled_from(KINDS),
)
decisions = st.builds(
    InPlace,
    instruction=st.integers(0, 99),
    operator=st.text(max_size=5),
    output=st.integers(0, 2),
    argument=st.none() | st.integers(0, 2),
    nbytes=st.integers(0, 99),
    reason=st.sampled_from(["one", "another"]),
)


@given(st.lists(elisions, max_size=9), st.lists(decisions, max_size=9))
def test_decisions_are_counted_once(copied: list[Elision], outputs: list[InPlace]) -> None:
    """Laws: nothing is lost or counted twice; each copy that stayed and each output that did has its reason."""
    counts, inplace = count_copies(copied), count_inplace(outputs)

    assert [item.kind for item in counts] == [kind for kind in KINDS if any(copy.kind == kind for copy in copied)]
    assert sum(item.considered for item in counts) == len(copied)
    assert sum(item.removed_bytes + item.kept_bytes for item in counts) == sum(copy.nbytes for copy in copied)
    assert all(sum(item.reasons.values()) == item.kept for item in counts)
    assert all(sum(item.partly.values()) <= item.removed for item in counts)
    assert (inplace.considered, sum(inplace.reasons.values())) == (len(outputs), inplace.refused)
    assert inplace.taken == sum(item.argument is not None for item in outputs)
    for numbers in (*(item.reasons for item in counts), inplace.reasons):
        assert list(numbers.values()) == sorted(numbers.values(), reverse=True)


@given(
    st.lists(checks, max_size=4),
    st.dictionaries(st.text(max_size=5), numbers, max_size=3),
    st.lists(elisions, max_size=3),
    st.lists(decisions, max_size=3),
)
def test_a_result_survives_json(
    found: list[CheckResult], seconds: dict[str, float], copied: list[Elision], outputs: list[InPlace]
) -> None:
    method = MethodResult(
        name="forward",
        inputs=("x: float32 [2]",),
        stateful=True,
        delegate_calls={"XnnpackBackend": 1},
        delegated_ops=3,
        undelegated=(UndelegatedOps(op="aten.sort.default", count=2),),
        operators=("aten::sort.values",),
        copies=count_copies(copied),
        inplace=count_inplace(outputs),
        copy_decisions=tuple(copied),
        inplace_decisions=tuple(outputs),
    )
    result = build(target("cpu", *found, methods=(method,), seconds=seconds, required=("runtime",)))

    assert BuildResult.model_validate_json(result.model_dump_json(indent=2)) == result
