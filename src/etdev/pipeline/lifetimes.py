"""From when to when bytes of planned memory are in use: of each tensor, and of all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from etdev.program.liveness import lifetimes
from etdev.program.storage import MethodMemory, Storage


@dataclass(frozen=True, slots=True)
class TensorLife:
    """A tensor in planned memory. Instants are those of :class:`~etdev.program.storage.Storage`."""

    value: int
    """Its index among the method's values."""
    storage: int
    """Index of the bytes that have to stay together, with all tensors that lie in them on purpose."""
    offset: int
    """Of its first byte, in the planned buffer."""
    size: int
    """Bytes, of the largest size that the tensor takes."""
    start: int
    """First instant at which it is in use itself."""
    end: int
    """First instant at which it is so no more; equal to ``start`` if it never is. Its bytes may be in use for longer:
    by an alias, or because they are state."""


def tensor_lives(memory: MethodMemory) -> tuple[TensorLife, ...]:
    """The tensors of a method in planned memory, by value index."""
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
    """Instants at which the number of bytes in use changes, and how many there are from then on."""
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
