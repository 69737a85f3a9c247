"""Numbers of examples that property tests draw."""

from __future__ import annotations

SHARE = 8
"""Tests without ``--slow`` draw one of so many examples, but all of them at night.

``conftest.py`` sets it before tests are imported.
"""
_FEWEST = 10


def examples(most: int) -> int:
    """Return the number of examples for a law of which a run with ``--slow`` draws ``most``."""
    return max(_FEWEST, most // SHARE)
