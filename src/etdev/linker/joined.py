"""Storages that passes merge into each other, before the result is applied to a method."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from etdev.linker.edit import placed_at, with_instructions
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory


class Refused(Exception):  # noqa: N818 - no error: the reason for leaving something as it is
    """The reason for not sharing bytes."""


@dataclass(slots=True)
class Joined:
    """Bytes that have to stay together: a storage, with all storages that were merged into it.

    Instants are those of :class:`~etdev.program.analysis.storage.Storage`.
    """

    number: int
    """Index of the storage that the others were merged into."""
    size: int
    """Size in bytes."""
    start: int
    """First instant at which any of it is in use."""
    end: int
    """First instant at which all of it is free again."""
    persistent: bool
    writes: list[int]
    """Instants at which any of it is written, in ascending order."""
    members: dict[int, int]
    """Storage index → offset in bytes from the start."""

    def is_written(self, after: int, before: int) -> bool:
        """Return whether any of it is written between two instants."""
        index = bisect_right(self.writes, after)
        return index < len(self.writes) and self.writes[index] < before


class Storages:
    """The storages of a method, separate at first, and the other changes of the passes that merge them.

    The method has to be an object program's, where only aliases share bytes.
    """

    def __init__(self, plan: m.ExecutionPlan, memory: MethodMemory) -> None:
        self.plan, self.memory = plan, memory
        self.changed: dict[int, tuple[m.Instruction, ...]] = {}
        """Position → instructions that replace the one there."""
        self.left: set[tuple[int, int]] = set()
        """Outputs whose operands are in state, by position and index: they are left for the write-back pass."""
        self._new: list[m.Value] = []
        self._slots: dict[int, tuple[int, int]] = {}
        """Added tensor → the tensor that it is a part of, and the offset in bytes from its start."""
        self._joined = [
            Joined(index, item.size, item.start, item.end, item.persistent, list(item.writes), {index: 0})
            for index, item in enumerate(memory.storages)
        ]
        self._read: dict[tuple[int, int], set[int]] = defaultdict(set)
        for use in memory.reaching.uses:
            self._read[use.position, use.value].add(use.place)

    def places(self, position: int, value: int) -> Collection[int]:
        """Return the values in whose planned places a value may be where an instruction reads it."""
        return self._read.get((position, value), ())

    def of(self, value: int) -> Joined | None:
        """Return the merged storage of a value; None if the value is not in planned memory."""
        number = self.memory.of.get(value)
        return None if number is None else self._joined[number]

    def offset(self, value: int) -> int:
        """Return the offset in bytes of a value's place from the start of its merged storage."""
        number = self.memory.of[value]
        inside = self.memory.reaching.places[value].start - self.memory.storages[number].offset
        return self._joined[number].members[number] + inside

    def place_read(self, position: int, value: int) -> int:
        """Return the value in whose place a value is where an instruction reads it.

        Raises :class:`Refused` if that place is not unique or not planned.
        """
        found = self.places(position, value)
        elsewhere = (position, value) in self.memory.reaching.elsewhere
        if len(found) != 1 or elsewhere:
            raise Refused("may be one of several tensors" if found else "is in memory that is not planned")
        return next(iter(found))

    def at(self, place: int) -> Joined:
        """Return the merged storage of a value that has a place."""
        return self._joined[self.memory.of[place]]

    def tensor(self, value: int) -> m.Tensor:
        """Return the tensor of a method before the merges."""
        tensor = self.plan.values[value]
        assert isinstance(tensor, m.Tensor)
        return tensor

    def fills(self, value: int) -> bool:
        """Return whether the place of a value is all of its merged storage."""
        found = self.of(value)
        tensor = self.plan.values[value]
        return found is not None and isinstance(tensor, m.Tensor) and tensor.nbytes == found.size

    def values(self, joined: Joined) -> Iterator[int]:
        """Iterate over all values in a merged storage."""
        return (value for number in joined.members for value in self.memory.storages[number].values)

    def memory_id(self, joined: Joined) -> int:
        """Return the buffer of a merged storage."""
        return self.memory.storages[joined.number].memory_id

    def all(self) -> list[Joined]:
        """Return all merged storages, each once."""
        return [joined for number, joined in enumerate(self._joined) if joined.number == number]

    def lay(self, inner: Joined, outer: Joined, at: int = 0) -> None:
        """Merge ``inner`` into ``outer``, ``at`` bytes from its start."""
        outer.start, outer.end = min(outer.start, inner.start), max(outer.end, inner.end)
        few, many = sorted((inner.writes, outer.writes), key=len)
        for write in few:
            index = bisect_left(many, write)
            if many[index : index + 1] != [write]:
                many.insert(index, write)
        outer.writes = many
        for number, offset in inner.members.items():
            outer.members[number] = at + offset
            self._joined[number] = outer

    def add(self, value: m.Value) -> int:
        """Add a value; return its index."""
        self._new.append(value)
        return len(self.plan.values) + len(self._new) - 1

    def add_part(self, tensor: m.Tensor, whole: int, offset: int) -> int:
        """Add a tensor in the bytes of another one; return its index."""
        index = self.add(tensor)
        self._slots[index] = whole, offset
        return index

    def parts(self) -> dict[int, int]:
        """Return each tensor that was added with the one that it is a part of."""
        return {index: whole for index, (whole, _) in self._slots.items()}

    def carried_out(self) -> tuple[m.ExecutionPlan, dict[int, int]]:
        """Return the method with all changes applied, and the positions of the instructions left: before → after.

        A storage that was merged into another one gets addresses inside that one.
        """
        values = [*self.plan.values, *self._new]
        for joined in self.all():
            base = self.memory.storages[joined.number]
            for value in self.values(joined) if len(joined.members) > 1 else ():
                place = m.AllocationDetails(base.memory_id, base.offset + self.offset(value))
                values[value] = placed_at(values[value], place)
        for index, (whole, offset) in self._slots.items():
            base = self.memory.storages[self.at(whole).number]
            place = m.AllocationDetails(base.memory_id, base.offset + self.offset(whole) + offset)
            values[index] = placed_at(values[index], place)
        return with_instructions(replace(self.plan, values=tuple(values)), self.changed)
