"""Messages between orchestrator and workers: jobs, their arguments and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array of the caller. The worker allocates memory for the array, and frees it when the task ends."""

    dtype: str
    shape: tuple[int, ...]
    data: Any
    """Content of the array; None if the task only writes to the array."""
    back: bool
    """True to send the content back when the task ends."""


@dataclass(frozen=True, slots=True)
class MemoryArgument:
    """Memory of a worker. The task uses this memory directly, without a copy."""

    buffer: int
    offset: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    writable: bool


@dataclass(frozen=True, slots=True)
class ObjectArgument:
    """Object on a worker. The task uses this object directly, without a copy."""

    number: int


@dataclass(frozen=True, slots=True)
class Job:
    """A call of a function on a worker."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    keep: int | None = None
    """Number under which the worker stores the result; None to send the result back."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Time and copies of one task."""

    seconds: float = 0.0
    """Seconds from start to end on the worker, including copies."""
    bytes_to: int = 0
    """Bytes copied from the host to the worker's memory."""
    bytes_from: int = 0
    """Bytes copied from the worker's memory to the host."""
    bytes_avoided: int = 0
    """Bytes of arguments that were already in the worker's memory."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a job, and its cost."""

    value: Any
    outputs: Mapping[int, bytes]
    """Maps the position of an argument to the new content of the caller's array."""
    cost: Cost
