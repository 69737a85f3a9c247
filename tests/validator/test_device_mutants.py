"""Device programs that were broken on purpose (B5, E2).

*plan*, *placement* or *replay* refuses every mutant in which an instruction reads other content.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.device_mutants import KINDS

pytest.importorskip("executorch", reason="needs the extra `build`")

from validator.device_subjects import CASES, CHECKS, Trial, make_subject, try_device_mutants


def _check(trial: Trial, *, made: int, changed: int) -> None:
    assert trial.missed == []
    total = trial.total()
    assert total.made >= made
    assert total.changed >= changed
    assert all(total.found[check] for check in CHECKS)


@pytest.mark.integration
def test_device_mutants(tmp_path: Path) -> None:
    """A few mutants of each kind, of a link with state and one with a branch."""
    subjects = [make_subject(name, tmp_path / name) for name in ("state on one device", "a branch")]
    _check(try_device_mutants(subjects, 2), made=50, changed=40)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_device_mutants(tmp_path: Path) -> None:
    subjects = [make_subject(name, tmp_path / name) for name in CASES]
    trial = try_device_mutants(subjects, 8)
    _check(trial, made=800, changed=500)
    assert trial.kinds.keys() == KINDS.keys()
