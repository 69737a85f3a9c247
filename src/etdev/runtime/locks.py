"""Queries about locks."""

from __future__ import annotations

from typing import Any


def is_mine(lock: Any) -> bool:
    """Return whether this thread holds a reentrant lock, tested as ``threading.Condition`` does."""
    return bool(lock._is_owned())
