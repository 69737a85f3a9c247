"""Storages that a pass lays into others, before it is written back to the values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from etdev.program import model as m
from etdev.program.storage import MethodMemory


class Refused(Exception):  # noqa: N818 - no error: the reason for leaving something as it is
    """Why bytes cannot be shared."""


@dataclass(slots=True)
class Joined:
    """Bytes that have to stay together: a storage, with all that was laid into it.

    Instants are those of :class:`~etdev.program.storage.Storage`.
    """

    number: int
    """Of the storage that the others were laid into."""
    size: int
    """Bytes."""
    start: int
    """First instant at which any of it is in use."""
    end: int
    """First instant at which all of it is free again."""
    persistent: bool
    writes: set[int]
    """The instants at which any of it is written."""
    members: dict[int, int]
    """Storage → bytes from the start."""


class Storages:
    """The storages of a method, each by itself at first."""

    def __init__(self, plan: m.ExecutionPlan, memory: MethodMemory) -> None:
        self._plan, self._memory = plan, memory
        self._joined = [
            Joined(index, item.size, item.start, item.end, item.persistent, set(item.writes), {index: 0})
            for index, item in enumerate(memory.storages)
        ]
        calls = memory.reaching.flow.instructions
        self._freed = frozenset(call.value_index for call in calls if isinstance(call, m.FreeCall))
        self._read: dict[tuple[int, int], set[int]] = defaultdict(set)
        for use in memory.reaching.uses:
            self._read[use.position, use.value].add(use.place)

    def places(self, position: int, value: int) -> Collection[int]:
        """The values in whose places one may lie where an instruction reads it, as far as that is planned memory."""
        return self._read.get((position, value), ())

    def of(self, value: int) -> Joined | None:
        """What a value has its place in; None if it has none."""
        number = self._memory.of.get(value)
        return None if number is None else self._joined[number]

    def offset(self, value: int) -> int:
        """Bytes of a value's place from the start of what it is in."""
        number = self._memory.of[value]
        inside = self._memory.reaching.places[value].start - self._memory.storages[number].offset
        return self._joined[number].members[number] + inside

    def place_read(self, position: int, value: int) -> int:
        """The value in whose place one lies where an instruction reads it. Raises :class:`Refused` if it has no one."""
        found = self.places(position, value)
        elsewhere = (position, value) in self._memory.reaching.elsewhere
        if len(found) != 1 or elsewhere:
            raise Refused("may be one of several tensors" if found else "lies in memory that is not planned")
        return next(iter(found))

    def at(self, place: int) -> Joined:
        """What a value that has a place has it in."""
        return self._joined[self._memory.of[place]]

    def fills(self, value: int) -> bool:
        """Is the place of a value all of what it is in?"""
        found = self.of(value)
        tensor = self._plan.values[value]
        return found is not None and isinstance(tensor, m.Tensor) and tensor.nbytes == found.size

    def values(self, joined: Joined) -> Iterator[int]:
        """All that lies there."""
        return (value for number in joined.members for value in self._memory.storages[number].values)

    def freed(self, joined: Joined) -> bool:
        """Does an instruction give back the memory of anything there?"""
        return not self._freed.isdisjoint(self.values(joined))

    def memory_id(self, joined: Joined) -> int:
        """The buffer that it is in."""
        return self._memory.storages[joined.number].memory_id

    def all(self) -> list[Joined]:
        """Each once."""
        return [joined for number, joined in enumerate(self._joined) if joined.number == number]

    def lay(self, inner: Joined, outer: Joined, at: int = 0) -> None:
        """Lay one into another, ``at`` bytes from its start."""
        outer.start, outer.end = min(outer.start, inner.start), max(outer.end, inner.end)
        outer.writes |= inner.writes
        for number, offset in inner.members.items():
            outer.members[number] = at + offset
            self._joined[number] = outer

    def written_back(self) -> m.ExecutionPlan:
        """The method with the addresses that this takes, inside those of the storages that others were laid into."""
        values = list(self._plan.values)
        for joined in self.all():
            base = self._memory.storages[joined.number]
            for value in self.values(joined) if len(joined.members) > 1 else ():
                there = m.AllocationDetails(base.memory_id, base.offset + self.offset(value))
                tensor = values[value]
                assert isinstance(tensor, m.Tensor)
                values[value] = replace(tensor, allocation_info=there)
        return replace(self._plan, values=tuple(values))
