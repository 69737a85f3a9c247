"""Cases of tests with many alike cases: which of them run for every commit, and which only at night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

EVERY = 3
"""Of the cases of a test with the marker ``sampled``, one in so many runs for every commit, the first among them."""


def mark_cases_of_every_night(items: Iterable[pytest.Item]) -> None:
    """Give the marker ``nightly`` to the cases that do not run for every commit.

    A case is counted in the order of the collection. So the same cases run each time, in any number of processes.
    """
    counts: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            if counts[test] % EVERY:
                item.add_marker(pytest.mark.nightly)
            counts[test] += 1
