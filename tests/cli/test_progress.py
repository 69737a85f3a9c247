"""What is shown while a metric calls the program (E2)."""

from __future__ import annotations

import pytest

from etdev.cli.rendering.build_progress import describe_count


@pytest.mark.parametrize(
    ("done", "total", "seconds", "expected"),
    [
        (1, None, 0.0, "1 call"),
        (1, 1000, 0.0, "1 of 1,000 calls"),
        (341, 1000, 3.4, "341 of 1,000 calls, 100.0 a second, 6.6 s left"),
        (1341, None, 6.7, "1,341 calls, 200.0 a second"),
        (1000, 1000, 9.99, "1,000 of 1,000 calls, 100.0 a second"),
        (5, 9, 0.0, "5 of 9 calls"),
    ],
)
def test_count_rate_and_what_is_left(done: int, total: int | None, seconds: float, expected: str) -> None:
    assert describe_count(done, total, seconds) == expected
