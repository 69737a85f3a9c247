"""The checks together: what was not run is never passed, whatever the runtime, the program and the config are like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etdev.config.check_names import BUILT_IN
from etdev.pipeline.results.result import outcome
from etdev.program import read
from etdev.program.footprint import planned_memory
from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError
from support.draws import examples
from support.verification import Prepared


class FakeRuntime:
    """Answers as it was told to, and counts the calls that it answered."""

    def __init__(self, operators: frozenset[str], backends: frozenset[str], load: str, call: str) -> None:
        self.operators, self.backends, self.usable_backends = operators, backends, backends
        self._load, self._call = load, call
        self.answered = 0

    def load(self, file: Path, *, shared: bool = False, data: Path | None = None) -> tuple[str, ...]:
        self._fail(self._load)
        return ("forward",)

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        self._fail(self._call)
        self.answered += 1
        right = self.model(*inputs).detach()  # type: ignore[attr-defined]
        answers = {
            "right": (right,),
            "wrong value": (right + 1,),
            "not a number": (right * torch.nan,),
            "wrong shape": (right[:1],),
            "wrong dtype": (right.double(),),
            "a number": (3,),
            "nothing": (),
            "too much": (right, right),
        }
        return answers[self._call]

    def _fail(self, what: str) -> None:
        if what == "refuse":
            raise ProgramFailureError("RuntimeError: refused")
        if what == "crash":
            raise RuntimeCrashError("the runtime's process ended with signal SIGSEGV")


ANSWERS = ("right", "wrong value", "not a number", "wrong shape", "wrong dtype", "a number", "nothing", "too much")
GATES = (
    "targets.cpu.budget.file=1",
    "targets.cpu.budget.file='1MiB'",
    "targets.cpu.verify.atol=1e-3",
    "targets.cpu.verify.min_snr_db=400",
    'targets.cpu.verify.accuracy={ fn = "data:right", min = 0 }',
    'targets.cpu.runtime.kernels=["portable"]',
    "targets.cpu.runtime.backends=[]",
)


@pytest.mark.integration
@given(
    operators=st.sampled_from([frozenset(), frozenset({"aten::linear.out"})]),
    needed=st.sampled_from([(), ("aten::linear.out",)]),
    backends=st.sampled_from([frozenset(), frozenset({"XnnpackBackend"})]),
    delegates=st.sampled_from([(), ("XnnpackBackend",)]),
    load=st.sampled_from(["done", "refuse", "crash"]),
    call=st.sampled_from([*ANSWERS, "refuse", "crash"]),
    gates=st.sets(st.sampled_from(GATES)),
)
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_did_not_run_never_passed(
    linear: Prepared,
    operators: frozenset[str],
    needed: tuple[str, ...],
    backends: frozenset[str],
    delegates: tuple[str, ...],
    load: str,
    call: str,
    gates: set[str],
) -> None:
    runtime = FakeRuntime(operators, backends, load, call)
    runtime.model = linear.candidate.float_model.eager["forward"]  # type: ignore[attr-defined]
    checks = linear.judge(
        *sorted(
            gates - {"targets.cpu.budget.file=1"} if len(gates) > 3 else gates - {"targets.cpu.budget.file='1MiB'"}
        ),
        runtime=runtime,
        operators={"forward": needed},
        delegates={"forward": delegates},
    )

    assert tuple(checks) == tuple(BUILT_IN)
    for check in checks.values():
        assert check.summary
        assert bool(check.problems) == (check.status == "failed")
        assert not check.gate or check.status == "failed"
        assert bool(check.where) == bool(check.hint) == (check.status == "failed")
    assert checks["device"].status == "not run"
    if not runtime.answered:
        assert checks["runtime"].status != "passed"
        # The metric is computed by the replay only where the stock runtime cannot run the file at all.
        assert checks["accuracy"].status == "not run" or checks["runtime"].status == "not run"
    if checks["runtime"].status == "passed":
        assert call == "right"
    if not set(needed) <= operators or not set(delegates) <= backends:
        assert checks["runtime"].status == "not run"
    if checks["kernels"].status == "passed":
        assert set(needed) <= operators
        assert set(delegates) <= backends
    if checks["accuracy"].status != "not run":
        assert any("accuracy" in gate for gate in gates)
    broken = [check for check in checks.values() if check.status == "failed" and not check.gate]
    assert (outcome(tuple(checks.values())) == "rejected") == bool(broken)


@pytest.mark.parametrize(
    ("limit", "status", "summary"),
    [
        ("'1MiB'", "passed", "file 5.75 KiB of 1.00 MiB"),
        ("5888", "passed", "file 5.75 KiB of 5.75 KiB"),
        ("5887", "failed", "file: 5,888 bytes, 1 more than budget.file (5,887); "),
    ],
)
def test_the_budget(linear: Prepared, limit: str, status: str, summary: str) -> None:
    check = linear.judge(f"targets.cpu.budget.file={limit}", size=5888)["budget"]

    assert check.status == status
    assert check.summary.startswith(summary)
    assert check.gate == (status == "failed")
    if check.gate:
        assert check.where == f"--set targets.cpu.budget.file={limit} (targets.cpu.budget.file)"
        assert check.hint == (
            "quantize the model, move the weights (8.00 KiB) to a file next to it (`external_weights`), "
            "or raise budget.file"
        )


@pytest.mark.parametrize("missing", [0, 1])
def test_the_budget_of_memory(linear: Prepared, missing: int) -> None:
    planned = planned_memory(read(linear.candidate.path))["cpu"]
    limit = planned - missing
    check = linear.judge(f"targets.cpu.budget.memory={{ cpu = {limit} }}")["budget"]

    assert (check.status, check.gate) == (("failed", True) if missing else ("passed", False))
    if missing:
        said = f"memory of cpu: {planned:,} bytes, 1 more than budget.memory.cpu ({limit:,}); at instruction "
        assert check.summary.startswith(said)
        assert check.where is not None
        assert check.where.endswith("(targets.cpu.budget.memory.cpu)")
        assert check.hint == (
            "let a delegate take ops (partitioners), make the largest inputs smaller (their shapes), or raise "
            "budget.memory"
        )


def test_each_budget_that_is_missed_has_its_place_and_its_remedy(linear: Prepared) -> None:
    check = linear.judge(
        "targets.cpu.budget={ file = 1, memory = { cpu = 1 } }",
        'targets.cpu.memory.planner="greedy"',
        'targets.cpu.quantize="int8"',
        'methods.forward.inputs=[{ name = "x", dtype = "float32", shape = ["rows", 32] }]',
        "methods.forward.dims.rows={ min = 2, max = 9 }",
    )["budget"]

    assert len(check.problems) == 2
    assert [place.rpartition(" ")[2] for place in str(check.where).split("; ")] == [
        "(targets.cpu.budget.file)",
        "(targets.cpu.budget.memory.cpu)",
    ]
    assert check.hint == (
        "move the weights (8.00 KiB) to a file next to it (`external_weights`), or raise budget.file; "
        'set `memory.planner` to "best", let a delegate take ops (partitioners), take and return integers '
        "(`io.forward.quantized`), make the largest inputs smaller (the max of dims), or raise budget.memory"
    )


def test_without_limits_there_is_nothing_to_pass(linear: Prepared) -> None:
    checks = linear.judge()

    assert (checks["budget"].status, checks["budget"].summary) == ("not run", "the config sets no limit")
    assert (checks["accuracy"].status, checks["accuracy"].summary) == ("not run", "the config names no metric")


@pytest.mark.parametrize("when", ["load", "call"])
def test_a_crash_is_a_broken_artifact(linear: Prepared, when: str) -> None:
    checks = linear.judge(
        runtime=FakeRuntime(frozenset(), frozenset(), *(("crash", "right") if when == "load" else ("done", "crash"))),
        operators={},
    )

    assert (checks["runtime"].status, checks["runtime"].gate) == ("failed", False)
    assert "signal SIGSEGV" in checks["runtime"].summary
