"""Cases of tests with many alike cases: which of them run for every commit, and which only at night."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

EVERY = 4
"""Of the cases of a test with the marker ``sampled``, one in so many runs for every commit, the first among them."""


def mark_cases_of_every_night(items: Iterable[pytest.Item]) -> None:
    """Give the marker ``nightly`` to the cases that do not run for every commit.

    ``sampled`` takes every fourth case. ``sampled(2)`` takes two cases, the first one and the one in the middle, and
    ``sampled(N)`` takes N cases at equal distances. Cases that have the marker ``slow`` or ``nightly`` themselves do
    not count. The order is that of the collection. So the same cases run each time, in any number of processes.
    """
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not any(map(item.get_closest_marker, ("slow", "nightly"))):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        chosen = _chosen(cases[0].get_closest_marker("sampled"), len(cases))
        for number, item in enumerate(cases):
            if number not in chosen:
                item.add_marker(pytest.mark.nightly)


def _chosen(marker: pytest.Mark | None, count: int) -> set[int]:
    """Return the numbers of the cases that run for every commit."""
    if marker is None or not marker.args:
        return set(range(0, count, EVERY))
    (wanted,) = marker.args
    return {number * count // wanted for number in range(wanted)}
