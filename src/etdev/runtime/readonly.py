"""Error for a write to read-only memory."""

from __future__ import annotations

from etdev.errors import UsageError


def refuse_write() -> UsageError:
    """Return the error for a task that writes to an argument with read-only access."""
    return UsageError("a task writes to a read-only argument", hint="request write access: `handle.resident('update')`")
