"""Lifetimes of tensors in planned memory, and the number of bytes in use over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from etdev.program.analysis.liveness import lifetimes
from etdev.program.analysis.storage import MethodMemory, Storage


@dataclass(frozen=True, slots=True)
class TensorLife:
    """Lifetime of a tensor in planned memory.

    Instants are numbered as in :class:`~etdev.program.analysis.storage.Storage`.
    """

    value: int
    """Index among the method's values."""
    storage: int
    """Index of the tensor's storage, which several tensors may share."""
    offset: int
    """Offset in bytes from the start of the planned buffer."""
    size: int
    """Size in bytes; for a dynamic shape, at the largest sizes."""
    start: int
    """First instant at which the tensor is in use."""
    end: int
    """First instant after the tensor's use; equal to ``start`` if the tensor is never in use.

    The tensor's bytes may remain in use for longer, if the storage has an alias or is state.
    """


def tensor_lives(memory: MethodMemory) -> tuple[TensorLife, ...]:
    """Return the lifetimes of a method's tensors in planned memory, in ascending order of value indices."""
    places = memory.reaching.places
    own = lifetimes(memory.reaching, {value: value for value in places}, lambda _: True)
    found = []
    for value, place in sorted(places.items()):
        number = memory.of[value]
        storage = memory.storages[number]
        start, end = own.get(value, (storage.start, storage.start))
        if len(storage.values) == 1:
            start, end = storage.start, storage.end
        found.append(TensorLife(value, number, place.start, place.end - place.start, start, end))
    return tuple(found)


def bytes_in_use(storages: Iterable[Storage]) -> tuple[tuple[int, int], ...]:
    """Return ``(instant, bytes in use)`` for each instant at which the number of bytes in use changes."""
    changes: Counter[int] = Counter()
    for storage in storages:
        changes[storage.start] += storage.size
        changes[storage.end] -= storage.size
    steps = []
    live = 0
    for instant, change in sorted(changes.items()):
        if change:
            live += change
            steps.append((instant, live))
    return tuple(steps)
