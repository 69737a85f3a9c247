"""Garbage collection is rare during a build, and as before after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from etdev.pipeline.builder.garbage import rare_collections


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("before", "during"),
    [((700, 10, 10), (100_000, 10, 10)), ((500_000, 5, 6), (500_000, 5, 6)), ((0, 10, 10), (0, 10, 10))],
)
def test_thresholds_change_for_the_block_alone(before: tuple[int, ...], during: tuple[int, ...]) -> None:
    gc.set_threshold(*before)
    with rare_collections():
        assert gc.get_threshold() == during

    assert gc.get_threshold() == before
