"""Room for the frames of Python functions, so that a loop of calls does not map and unmap memory in each pass.

CPython keeps the frames of a thread in chunks of 16 KiB, its *data stack*. It maps a chunk when a frame does not fit
into the last one, and unmaps the chunk when that frame returns. A loop whose calls start at the end of a chunk does
this for each call, which takes microseconds. At the depth of ``etdev build``, that was a third of the time of a small
build. A Python program that calls etdev can have any depth.

Source: ``push_chunk`` and ``_PyThreadState_PopFrame`` in ``Python/pystate.c`` of CPython 3.11 to 3.13.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_ROOM = 1 << 17
"""Words of a frame that is as large as half of a chunk: 1 MiB. Chunks grow in powers of two, and memory that no frame
uses takes addresses only."""


def with_room(function: Callable[P, T]) -> Callable[P, T]:
    """Return ``function`` with 1 MiB for the frames of all functions that it calls in its thread."""

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        return _call(function, arguments, named)

    return call


def _call(function: Callable[..., T], arguments: tuple[object, ...], named: dict[str, object]) -> T:
    return function(*arguments, **named)


# The chunk for this frame has twice its size. The other half is for the frames above it.
_call.__code__ = _call.__code__.replace(co_stacksize=_ROOM + 1)
