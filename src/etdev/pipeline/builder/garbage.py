"""Garbage collection during a build."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 100_000
"""Number of new objects after which Python collects garbage."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python collect garbage rarely during the block.

    A build makes millions of objects, most of which live until the build ends. By default, Python would check them so
    often that this takes a fifth of the processor time. If garbage collection is off, it stays off.
    """
    first, *others = gc.get_threshold()
    if first:
        gc.set_threshold(max(first, _OBJECTS), *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
