"""Test for the holder of a lock."""

from __future__ import annotations

from typing import Any


def is_mine(lock: Any) -> bool:
    """Return True if the calling thread holds this reentrant lock; ``threading.Condition`` uses the same test."""
    return bool(lock._is_owned())
