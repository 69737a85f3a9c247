"""Messages to workers and back: jobs, their arguments and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """Array of the caller. The worker has memory for it while the task runs."""

    dtype: str
    shape: tuple[int, ...]
    data: Any
    """Bytes of the array; None if the task only writes it."""
    back: bool
    """True if the bytes are copied back."""


@dataclass(frozen=True, slots=True)
class MemoryArgument:
    """Memory that stays on the worker."""

    buffer: int
    offset: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    writable: bool


@dataclass(frozen=True, slots=True)
class ObjectArgument:
    """Object that stays on the worker."""

    number: int


@dataclass(frozen=True, slots=True)
class Job:
    """Job for a worker to run."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    keep: int | None = None
    """Number of the object that the result becomes on the worker; None to send the result back."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a task."""

    seconds: float = 0.0
    """Seconds from begin to end on the worker, copies included."""
    bytes_to: int = 0
    """Bytes copied to the worker's memory."""
    bytes_from: int = 0
    """Bytes copied from the worker's memory."""
    bytes_avoided: int = 0
    """Bytes of resident arguments, which are not copied."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a job."""

    value: Any
    outputs: Mapping[int, bytes]
    """Position of an argument → bytes that are copied back."""
    cost: Cost
