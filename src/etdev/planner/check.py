"""Validation of a plan. It shares no code with the planners."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from etdev.planner.problem import Buffer, CollisionError, OffsetError, PlanError, Problem, label

_MOST_BYTES = 2**63 - 1
"""Size limit of an arena in bytes: the largest signed 64-bit number."""


def check_plan(problem: Problem, offsets: Sequence[int]) -> None:
    """Raise :class:`PlanError` for the first error in the offsets; O(n log n).

    There must be one integer per buffer. Each offset must be a multiple of the buffer's alignment, and must equal the
    buffer's pin if there is one. The end of each buffer must be below 2**63. Buffers that are in use at the same
    instant must not share bytes.
    """
    numbers = read_offsets(problem, offsets)
    for index, (buffer, offset) in enumerate(zip(problem.buffers, numbers, strict=True)):
        flaw = _flaw(buffer, offset)
        if flaw:
            raise OffsetError(f"{label(index, buffer)} is at offset {offset}, {flaw}", index)
    _check_collisions(problem.buffers, numbers)


def read_offsets(problem: Problem, offsets: object) -> tuple[int, ...]:
    """Return the offsets as integers. Any type of sequence and any type of integer is accepted.

    Raises :class:`PlanError` if the offsets are not a sequence with one integer per buffer.
    """
    values = read_items(offsets, "offsets")
    if len(values) != len(problem.buffers):
        raise PlanError(f"expected one offset for each of {len(problem.buffers)} buffers, found {len(values)} offsets")
    return tuple(_read_offset(index, problem.buffers[index], value) for index, value in enumerate(values))


def read_items(answer: object, what: str) -> list[object]:
    """Return the items of any type of sequence that a planner returned.

    Raises :class:`PlanError`, with ``what`` as the description of the items, if the answer is not a sequence.
    """
    if not isinstance(answer, Sequence) and (isinstance(answer, Mapping) or not hasattr(answer, "__getitem__")):
        raise PlanError(f"expected a sequence of {what}, found {type(answer).__name__}")
    return list(answer)  # type: ignore[call-overload, no-any-return]  # Anything with items is iterable.


def read_integer(value: object) -> int | None:
    """Return an integer of any type as int. Return None for anything else, such as a bool."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # It rejects unfit types itself.
    except TypeError:
        return None


def _read_offset(index: int, buffer: Buffer, value: object) -> int:
    found = read_integer(value)
    if found is None:
        raise OffsetError(
            f"{label(index, buffer)} has the offset {value!r} of type {type(value).__name__}; expected an integer",
            index,
        )
    return found


def _flaw(buffer: Buffer, offset: int) -> str | None:
    if offset < 0:
        return "before the start of the arena"
    if offset + buffer.size > _MOST_BYTES:
        return "which is too large for a file"
    if offset % buffer.alignment:
        return f"which is not a multiple of its alignment {buffer.alignment}"
    if buffer.pin is not None and offset != buffer.pin:
        return f"but is pinned to {buffer.pin}"
    return None


def _check_collisions(buffers: Sequence[Buffer], offsets: Sequence[int]) -> None:
    """Raise :class:`CollisionError` for the first two buffers that share a byte at the same instant.

    The check goes through the instants in order, and keeps the ranges in use sorted by offset. These ranges are
    disjoint, so a new range can collide only with its neighbours.
    """
    live: list[tuple[int, int]] = []  # (offset, index), sorted
    for index, begins in _events(buffers):
        entry = (offsets[index], index)
        place = bisect_left(live, entry)
        if not begins:
            del live[place]
            continue
        for other in live[max(place - 1, 0) : place + 1]:
            if _share_bytes(buffers, offsets, index, other[1]):
                raise _collision(buffers, offsets, index, other[1])
        live.insert(place, entry)


def _events(buffers: Sequence[Buffer]) -> Iterator[tuple[int, bool]]:
    """Yield the start and the end of each buffer's lifetime in order, as ``(index, starts)``.

    ``starts`` is True for a start and False for an end. At the same instant, ends come first.
    """
    active = [index for index, buffer in enumerate(buffers) if buffer.occupies]
    events = [(buffers[index].end, False, index) for index in active]
    events += [(buffers[index].start, True, index) for index in active]
    events.sort()
    for _, begins, index in events:
        yield index, begins


def _share_bytes(buffers: Sequence[Buffer], offsets: Sequence[int], first: int, second: int) -> bool:
    return (
        offsets[first] < offsets[second] + buffers[second].size
        and offsets[second] < offsets[first] + buffers[first].size
    )


def _collision(buffers: Sequence[Buffer], offsets: Sequence[int], later: int, earlier: int) -> CollisionError:
    instant = buffers[later].start
    held = " and ".join(
        f"{label(index, buffers[index])} at bytes [{offsets[index]}, {offsets[index] + buffers[index].size})"
        + (" (pinned)" if buffers[index].pin is not None else "")
        for index in (earlier, later)
    )
    return CollisionError(f"collision at instant {instant}: {held} are both in use", earlier, later, instant)
