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
"""


def test_every_third_case_runs(pytester: pytest.Pytester, repository: Path) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    sampled\n    nightly\n")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_cases=CASES)
    pytester.syspathinsert(repository / "tests")

    result = pytester.runpytest("--collect-only", "-q", "-m", "not nightly")

    cases = [line.partition("::")[2] for line in result.outlines if "::" in line]
    assert cases == [f"test_one[{case}]" for case in "adg"] + ["test_two[a]", "test_two[b]", "test_three[a]"]
