"""Room for the frames of Python functions, so that calls in a loop do not map and unmap memory each time.

CPython keeps the frames of a thread in chunks of 16 KiB, its *data stack*. If a frame does not fit into the last chunk,
CPython maps another one. It unmaps this chunk when the frame returns. If the calls in a loop start at the end of a
chunk, each call maps and unmaps a chunk. This takes microseconds for each call. In ``etdev build``, it took a third of
the time of a small build. A Python program may call etdev at any depth of the stack.

Source: ``push_chunk`` and ``_PyThreadState_PopFrame`` in ``Python/pystate.c`` of CPython 3.11 to 3.13.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_ROOM = 1 << 17
"""Number of words in a frame of 1 MiB, which takes half of its chunk.

The sizes of chunks are powers of two. The part of a chunk that no frame has used takes up addresses, but no RAM.
"""


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
