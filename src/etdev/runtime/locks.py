"""Locks, and who has them."""

from __future__ import annotations

from typing import Any


def is_mine(lock: Any) -> bool:
    """Does this thread have a reentrant lock? It is asked as ``threading.Condition`` asks."""
    return bool(lock._is_owned())
