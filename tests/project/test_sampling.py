"""Which cases of a test with the marker ``sampled`` run for every commit."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

CONFTEST = """
from support.sampling import mark_cases_of_every_night

def pytest_collection_modifyitems(items):
    mark_cases_of_every_night(items)
"""
CASES = """
import pytest

@pytest.mark.parametrize("case", "abcdefg")
@pytest.mark.sampled
def test_one(case): ...

@pytest.mark.parametrize("case", "ab")
def test_two(case): ...

@pytest.mark.parametrize("case", "ab")
@pytest.mark.sampled
def test_three(case): ...

@pytest.mark.parametrize("case", "abcdefg")
@pytest.mark.sampled(NUMBER)
def test_four(case): ...

@pytest.mark.parametrize("case", [pytest.param("a", marks=pytest.mark.slow), "b", "c"])
@pytest.mark.sampled(1)
def test_five(case): ...
"""


@pytest.mark.parametrize(
    ("number", "chosen"), [(1, "a"), (2, "ad"), (3, "ace"), (6, "abcdef"), (7, "abcdefg"), (9, "abcdefg")]
)
def test_every_fourth_case_runs_or_a_number_of_them(
    pytester: pytest.Pytester, repository: Path, number: int, chosen: str
) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    sampled\n    nightly\n    slow\n")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_cases=CASES.replace("NUMBER", str(number)))
    pytester.syspathinsert(repository / "tests")

    result = pytester.runpytest("--collect-only", "-q", "-m", "not nightly and not slow")

    cases = [line.partition("::")[2] for line in result.outlines if "::" in line]
    assert cases == [
        *(f"test_one[{case}]" for case in "ae"),
        *("test_two[a]", "test_two[b]", "test_three[a]"),
        *(f"test_four[{case}]" for case in chosen),
        "test_five[b]",
    ]
