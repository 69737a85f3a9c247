"""The input and the result of planning.

Nothing here depends on tensors, files or devices. A buffer is a number of bytes that are in use from one instant to
another. A plan states the offset of each buffer in the arena. Instants are integers whose order alone matters; a linker
uses the indices of instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class PlanError(ValueError):
    """A problem that cannot be planned, or a plan that is wrong."""


class ProblemError(PlanError):
    """An invalid buffer: a negative size, an end before its start, a pin that its alignment forbids."""


class OffsetError(PlanError):
    """An offset that is not an integer, is negative, misaligned, or differs from the buffer's pin."""

    def __init__(self, message: str, buffer: int) -> None:
        super().__init__(message)
        self.buffer = buffer
        """Index in ``problem.buffers``."""


class CollisionError(PlanError):
    """A collision: two buffers that are in use at the same instant share bytes."""

    def __init__(self, message: str, first: int, second: int, instant: int) -> None:
        super().__init__(message)
        self.first = first
        """Index in ``problem.buffers`` of the buffer that starts earlier. If both start together, the lower index."""
        self.second = second
        self.instant = instant
        """The first instant at which both are in use."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that are in use for a range of instants."""

    size: int
    """Bytes, 0 or more."""
    start: int
    """First instant at which it is in use."""
    end: int
    """First instant at which it is free again (half-open). A buffer with ``start == end`` is never in use."""
    alignment: int = 16
    """Divisor of the offset, a power of two."""
    pin: int | None = None
    """Required offset; None if the planner may choose it."""
    name: str = ""
    """For messages only."""

    @property
    def occupies(self) -> bool:
        """True if it holds bytes at some instant. Otherwise it collides with nothing."""
        return self.size > 0 and self.start < self.end

    @property
    def flaw(self) -> str | None:
        """Reason why the buffer is invalid, as the end of a sentence; None if it is valid."""
        return _flaw(self)


@dataclass(frozen=True, slots=True)
class Problem:
    """The buffers of one arena on one device.

    Raises :class:`ProblemError` for the first invalid buffer.
    """

    buffers: tuple[Buffer, ...]
    capacity: int | None = None
    """Number of bytes that are available; None asks for the smallest plan.

    A planner may stop at the first plan that fits. It may also return a plan that does not fit, which the caller
    handles.
    """

    def __post_init__(self) -> None:
        for index, buffer in enumerate(self.buffers):
            if flaw := buffer.flaw:
                raise ProblemError(f"{label(index, buffer)} {flaw}")
        if self.capacity is not None and (not _is_int(self.capacity) or self.capacity < 0):
            raise ProblemError(f"capacity: expected bytes, 0 or more, or None, found {self.capacity!r}")


@dataclass(frozen=True, slots=True)
class Plan:
    """The offset of each buffer. :func:`etdev.planner.make_plan` makes and checks plans."""

    offsets: tuple[int, ...]
    """Bytes from the start of the arena, in the order of ``problem.buffers``."""
    size: int
    """Bytes of the arena: the largest end of the buffers that are ever in use."""
    lower_bound: int
    """Number of bytes that every plan needs at least. The smallest plan may be larger."""
    planner: str
    """Name of the planner that made it."""

    @property
    def optimal(self) -> bool:
        """True if the plan is known to be the smallest."""
        return self.size == self.lower_bound


Planner = Callable[[Problem], Sequence[int]]
"""A function that returns offsets in bytes, in the order of ``problem.buffers``."""


def label(index: int, buffer: Buffer) -> str:
    """Return the name of a buffer in messages: ``buffer 3``, ``buffer 3 'relu'``."""
    return f"buffer {index} {buffer.name!r}" if buffer.name else f"buffer {index}"


def _flaw(buffer: Buffer) -> str | None:
    """Return the reason why a buffer is invalid, as the end of a sentence; None if it is valid."""
    pin = buffer.pin
    for what, value in (("size", buffer.size), ("start", buffer.start), ("end", buffer.end), ("pin", pin)):
        if not _is_int(value) and not (what == "pin" and value is None):
            return f"has the {what} {value!r}; expected an integer"
    if buffer.size < 0:
        return f"has the size {buffer.size}; expected 0 or more"
    if buffer.end < buffer.start:
        return f"ends at {buffer.end}, before its start at {buffer.start}"
    alignment = buffer.alignment
    if not _is_int(alignment) or alignment < 1 or alignment & (alignment - 1):
        return f"has the alignment {alignment!r}; expected a power of two"
    if pin is not None and (pin < 0 or pin % alignment):
        return f"is pinned to {pin}; expected a multiple of its alignment {alignment}, 0 or more"
    return None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
