"""Errors of writes to read-only memory."""

from __future__ import annotations

from etdev.errors import UsageError


def refuse_write() -> UsageError:
    """Return the error of a task that writes to a read-only argument."""
    return UsageError("a task writes to an argument that it only reads", hint="`resident('update')` lets it")
