"""Each rule of the validator on its own: a correct link that it proves, and a wrong one that it refuses (E2)."""

from __future__ import annotations

import pytest

from validator.cases import CASES, Case
from validator.pairs import DATA, OFFSETS, only, validate


def folded() -> bytes:
    """Return the usual data, with constant 1 transposed as constant 5."""
    rows = [DATA[OFFSETS[1] + 4 * index : OFFSETS[1] + 4 * index + 4] for index in range(16)]
    columns = b"".join(rows[4 * column + row] for row in range(4) for column in range(4))
    return DATA[: OFFSETS[5]] + columns + DATA[OFFSETS[5] + 64 :]


def data_of(name: str, variant: str) -> bytes:
    """Return the data of the file after the link."""
    return folded() if name == "a constant is moved about ahead of time" and variant == "good" else DATA


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=CASES)
def test_a_right_link_is_proved(name: str, case: Case) -> None:
    report = validate(case.build("before"), case.build("good"), case.gone, case.new, data=data_of(name, "good"))

    assert report.violations == ()
    assert report.proved


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=CASES)
def test_a_wrong_link_is_refused(name: str, case: Case) -> None:
    report = validate(case.build("before"), case.build("bad"), case.gone, case.new, data=data_of(name, "bad"))

    assert not report.proved
    assert only(report).kind == case.kind
