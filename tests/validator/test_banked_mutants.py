"""Links into memory banks that were broken on purpose: every harmful one is refused (E2, G1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.stock import shared_runtime
from validator.banked_mutants import ADDRESSES, BANKED, each_in_banks, try_banked
from validator.subjects import MODELS, OTHERS, make

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.nightly)])
def test_mutants_in_banks(tmp_path: Path, every: int) -> None:
    """Of every ninth program, and of all of them at night."""
    cases = list({**MODELS, **OTHERS}.items())[::every]
    subjects = [make(name, case, tmp_path / str(number)) for number, (name, case) in enumerate(cases)]
    trial = try_banked(each_in_banks(subjects), 2, shared_runtime(), tmp_path)
    assert trial.missed == []
    total = trial.total()
    share = 1 if every == 1 else every + 1  # The programs have unequal numbers of mutants.
    assert total.made >= 450 // share
    assert total.changed >= 250 // share
    assert all(tally.made >= 20 // share for tally in trial.kinds.values())
    assert trial.kinds.keys() == {*ADDRESSES, *BANKED}
