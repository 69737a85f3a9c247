"""What goes to workers and comes back: jobs, their arguments, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array of the caller's, for which there is memory on the worker as long as the task runs."""

    dtype: str
    shape: tuple[int, ...]
    data: Any
    """Its bytes; None for one that is only written."""
    back: bool
    """Do they come back?"""


@dataclass(frozen=True, slots=True)
class MemoryArgument:
    """Memory that stays where it is."""

    buffer: int
    offset: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    writable: bool


@dataclass(frozen=True, slots=True)
class ObjectArgument:
    """An object that stays where it is."""

    number: int


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is to run."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    keep: int | None = None
    """Number of the object that the result becomes on the worker; None to send it back."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a task took."""

    seconds: float = 0.0
    """Between its begin and its end on the worker, copies included."""
    bytes_to: int = 0
    """Copied to the worker's memory."""
    bytes_from: int = 0
    """Copied from it."""
    bytes_avoided: int = 0
    """In resident arguments: what would have been copied there."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job."""

    value: Any
    outputs: Mapping[int, bytes]
    """Position of an argument → the bytes that come back."""
    cost: Cost
