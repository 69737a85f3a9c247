"""The input and the result of planning.

Nothing here depends on tensors, files or devices. A buffer is a number of bytes that are in use from one instant to
another. A plan states the offset of each buffer in the arena. Instants are integers, and only their order matters. A
linker uses the indices of instructions as instants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class PlanError(ValueError):
    """Error for a problem that cannot be planned, or for a wrong plan."""


class ProblemError(PlanError):
    """Error for an invalid buffer, such as a negative size, an end before its start or a misaligned pin."""


class OffsetError(PlanError):
    """Error for an offset that is not an integer, is negative or misaligned, or differs from the buffer's pin."""

    def __init__(self, message: str, buffer: int) -> None:
        super().__init__(message)
        self.buffer = buffer
        """Index in ``problem.buffers``."""


class CollisionError(PlanError):
    """Error for two buffers that are in use at the same instant and share bytes."""

    def __init__(self, message: str, first: int, second: int, instant: int) -> None:
        super().__init__(message)
        self.first = first
        """Index in ``problem.buffers`` of the buffer that starts first. If both start together, the lower index."""
        self.second = second
        self.instant = instant
        """First instant at which both buffers are in use."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that are in use for a range of instants."""

    size: int
    """Size in bytes, 0 or more."""
    start: int
    """First instant at which the buffer is in use."""
    end: int
    """First instant at which the buffer is free again. A buffer with ``start == end`` is never in use."""
    alignment: int = 16
    """Alignment of the offset in bytes, a power of two."""
    pin: int | None = None
    """Required offset, or None if the planner may choose the offset."""
    name: str = ""
    """Name for messages."""

    @property
    def occupies(self) -> bool:
        """Return True if the buffer holds bytes at some instant. Otherwise, the buffer cannot collide."""
        return self.size > 0 and self.start < self.end

    @property
    def flaw(self) -> str | None:
        """Return the reason why the buffer is invalid, as the end of a sentence. Return None for a valid buffer."""
        return _flaw(self)


@dataclass(frozen=True, slots=True)
class Problem:
    """The buffers of one arena on one device.

    Raises :class:`ProblemError` for the first invalid buffer.
    """

    buffers: tuple[Buffer, ...]
    capacity: int | None = None
    """Number of available bytes, or None to look for the smallest plan.

    A planner may stop at the first plan that fits. A planner may also return a plan that does not fit; the caller must
    handle such a plan.
    """

    def __post_init__(self) -> None:
        for index, buffer in enumerate(self.buffers):
            if flaw := buffer.flaw:
                raise ProblemError(f"{label(index, buffer)} {flaw}")
        if self.capacity is not None and (not _is_int(self.capacity) or self.capacity < 0):
            raise ProblemError(f"capacity: expected None or a number of at least 0, found {self.capacity!r}")


@dataclass(frozen=True, slots=True)
class Plan:
    """Offsets of buffers, with facts about the plan. :func:`etdev.planner.make_plan` makes and checks plans."""

    offsets: tuple[int, ...]
    """Offsets in bytes from the start of the arena, in the order of ``problem.buffers``."""
    size: int
    """Size of the arena in bytes: the highest end offset of any buffer that is in use at some time."""
    lower_bound: int
    """Number of bytes that every plan needs. The smallest plan may be larger."""
    planner: str
    """Name of the planner that made the plan."""

    @property
    def optimal(self) -> bool:
        """Return True if the plan is known to be the smallest."""
        return self.size == self.lower_bound


Planner = Callable[[Problem], Sequence[int]]
"""Function that returns offsets in bytes, in the order of ``problem.buffers``."""


def label(index: int, buffer: Buffer) -> str:
    """Return the name of a buffer for messages, such as ``buffer 3`` or ``buffer 3 'relu'``."""
    return f"buffer {index} {buffer.name!r}" if buffer.name else f"buffer {index}"


def _flaw(buffer: Buffer) -> str | None:
    """Return the reason why a buffer is invalid, as the end of a sentence. Return None for a valid buffer."""
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
        return f"is pinned to {pin}; expected a nonnegative multiple of its alignment {alignment}"
    return None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
