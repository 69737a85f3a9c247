"""Room for the frames of Python functions, so that calls in a loop do not map and unmap memory each time.

CPython keeps the frames of a thread in chunks of 16 KiB, its *data stack*. If a frame does not fit into the last chunk,
CPython maps a new chunk. When the frame returns, CPython unmaps the new chunk. If the calls in a loop start at the end
of a chunk, each call maps and unmaps a chunk. This takes microseconds for each call, and took a third of the time of a
small ``etdev build``. etdev cannot choose where a loop starts, because its callers use parts of the stack, too.

Source: ``push_chunk`` and ``_PyThreadState_PopFrame`` in ``Python/pystate.c`` of CPython 3.11 to 3.13.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_ROOM = 1 << 17
"""Number of words in a frame of 1 MiB. The frame takes half of its chunk.

The size of a chunk is a power of two. The unused part of a chunk takes up addresses, but no RAM.
"""


def with_room(function: Callable[P, T]) -> Callable[P, T]:
    """Return a wrapper that calls ``function`` with at least 1 MiB of room on the data stack of the thread."""

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        return _call(function, arguments, named)

    return call


def _call(function: Callable[..., T], arguments: tuple[object, ...], named: dict[str, object]) -> T:
    return function(*arguments, **named)


# The chunk for this frame has twice its size. The other half is for the frames above it.
_call.__code__ = _call.__code__.replace(co_stacksize=_ROOM + 1)
