"""Function that tests whether the calling thread holds a lock."""

from __future__ import annotations

from typing import Any


def is_mine(lock: Any) -> bool:
    """Return True if the calling thread holds this reentrant lock, like the check in ``threading.Condition``."""
    return bool(lock._is_owned())
