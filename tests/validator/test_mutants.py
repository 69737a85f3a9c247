"""Links that were broken on purpose: every one that computes something else in the stock runtime is refused (E2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.runtime.stock import StockRuntime
from support.stock import shared_runtime
from validator.mutants import KINDS
from validator.subjects import MODELS, OTHERS, Trial, make, try_mutants


def _check(trial: Trial, *, made: int, changed: int) -> None:
    assert trial.missed == []
    total = trial.total()
    assert total.made >= made
    assert total.changed >= changed
    assert total.changed_and_rejected == total.changed


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.sampled(1)
def test_mutants(name: str, tmp_path: Path) -> None:
    """A tenth of the mutants, in the shared runtime; the slow test covers kernels that crash it."""
    subject = make(name, MODELS[name], tmp_path / "model")
    _check(try_mutants([subject], 2, shared_runtime(), tmp_path), made=20, changed=12)


@pytest.mark.slow
def test_many_mutants(tmp_path: Path) -> None:
    cases = {**MODELS, **OTHERS}
    subjects = [make(name, case, tmp_path / str(number)) for number, (name, case) in enumerate(cases.items())]
    with StockRuntime(limit=30) as runtime:
        trial = try_mutants(subjects, 12, runtime, tmp_path)

    _check(trial, made=1000, changed=300)
    assert trial.kinds.keys() == {*KINDS, "other data"}
