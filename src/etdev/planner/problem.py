"""What is planned, and what a plan is.

Nothing here knows of tensors, files or devices: a buffer is so many bytes that are in use from one instant to another,
and a plan says at which offset of the arena each one lies. Instants are integers that only have an order; a linker
uses the indices of instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class PlanError(ValueError):
    """A problem that cannot be planned, or a plan that is wrong."""


class ProblemError(PlanError):
    """A buffer that cannot be: a negative size, an end before its start, a pin that its alignment forbids."""


class OffsetError(PlanError):
    """The offset of one buffer is not a number, is negative, misaligned, or is not the buffer's pin."""

    def __init__(self, message: str, buffer: int) -> None:
        super().__init__(message)
        self.buffer = buffer
        """Index in ``problem.buffers``."""


class CollisionError(PlanError):
    """Two buffers that are in use at the same instant share bytes."""

    def __init__(self, message: str, first: int, second: int, instant: int) -> None:
        super().__init__(message)
        self.first = first
        """Index in ``problem.buffers`` of the one that is in use earlier, or of the lower index."""
        self.second = second
        self.instant = instant
        """The first instant at which both are in use."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that are needed for a while."""

    size: int
    """Bytes, 0 or more."""
    start: int
    """First instant at which its bytes are in use."""
    end: int
    """First instant at which they are free again (half-open). A buffer with ``start == end`` is never in use."""
    alignment: int = 16
    """Power of two that the offset is a multiple of."""
    pin: int | None = None
    """Offset that the buffer must have."""
    name: str = ""
    """For messages only."""

    @property
    def occupies(self) -> bool:
        """Whether it ever holds a byte. One that does not collides with nothing."""
        return self.size > 0 and self.start < self.end

    @property
    def flaw(self) -> str | None:
        """Why there can be no such buffer, as the end of a sentence; None if there can."""
        return _flaw(self)


@dataclass(frozen=True, slots=True)
class Problem:
    """The buffers of one arena on one device. Raises :class:`ProblemError` for the first buffer that cannot be."""

    buffers: tuple[Buffer, ...]
    capacity: int | None = None
    """Bytes. A planner may stop at a plan that fits; what to do about a plan that does not is the caller's matter."""

    def __post_init__(self) -> None:
        for index, buffer in enumerate(self.buffers):
            if flaw := buffer.flaw:
                raise ProblemError(f"{label(index, buffer)} {flaw}")
        if self.capacity is not None and (not _is_int(self.capacity) or self.capacity < 0):
            raise ProblemError(f"capacity: expected bytes, 0 or more, or None, found {self.capacity!r}")


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each buffer lies. Made, and checked, by :func:`etdev.planner.make_plan`."""

    offsets: tuple[int, ...]
    """Bytes from the start of the arena, in the order of ``problem.buffers``."""
    size: int
    """Bytes of the arena: the largest end of the buffers that are ever in use."""
    lower_bound: int
    """Bytes: no plan can be smaller. Some problems have no plan that small."""
    planner: str
    """Name of what made it."""

    @property
    def optimal(self) -> bool:
        """Whether the plan is known to be the smallest."""
        return self.size == self.lower_bound


Planner = Callable[[Problem], Sequence[int]]
"""Offsets in bytes, in the order of ``problem.buffers``."""


def label(index: int, buffer: Buffer) -> str:
    """How messages call a buffer: ``buffer 3``, ``buffer 3 'relu'``."""
    return f"buffer {index} {buffer.name!r}" if buffer.name else f"buffer {index}"


def _flaw(buffer: Buffer) -> str | None:
    """What is wrong with a buffer, as the end of a sentence."""
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
