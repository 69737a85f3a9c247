"""Merging of several storages into one. Passes first record all merges; a later pass applies the merges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from etdev.linker.edit import placed_at, with_instructions
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory


class Refused(Exception):  # noqa: N818 - no error: the reason for leaving something as it is
    """Error with the reason why a pass keeps a copy, or does not let two tensors share bytes."""


@dataclass(slots=True)
class MergedStorage:
    """A storage, and all storages that were merged into it.

    Instants have the meaning described in :class:`~etdev.program.analysis.storage.Storage`.
    """

    number: int
    """Index of the storage into which the others were merged."""
    size: int
    """Size in bytes."""
    start: int
    """First instant at which any byte of the storage is in use."""
    end: int
    """First instant at which no byte of the storage is in use any more."""
    persistent: bool
    writes: list[int]
    """Instants at which any byte of the storage is written, in ascending order."""
    members: dict[int, int]
    """Maps the index of each merged storage to its offset in this storage, in bytes."""
    bank: str | None = None
    """Bank that the storage must be in, or None if it may be in any bank."""

    def is_written(self, after: int, before: int) -> bool:
        """Return whether any byte is written later than ``after`` and earlier than ``before``."""
        index = bisect_right(self.writes, after)
        return index < len(self.writes) and self.writes[index] < before


class Storages:
    """Storages of a method, with the merges so far and with other changes that the merges require.

    The method must belong to an object program, in which only aliases share bytes. At first, no storage is merged.
    """

    def __init__(self, plan: m.ExecutionPlan, memory: MethodMemory, pinned: Mapping[int, str] | None = None) -> None:
        self.plan, self.memory = plan, memory
        self.changed: dict[int, tuple[m.Instruction, ...]] = {}
        """Maps the position of an instruction to its replacements. An empty tuple removes the instruction."""
        self.deferred: set[tuple[int, int]] = set()
        """Outputs with an operand in state, as ``(position, output)``. A later pass decides about these outputs."""
        self._new: list[m.Value] = []
        self._slots: dict[int, tuple[int, int]] = {}
        """Maps each added tensor to ``(tensor that contains it, offset in that tensor in bytes)``."""
        self._merged = [
            MergedStorage(index, item.size, item.start, item.end, item.persistent, list(item.writes), {index: 0})
            for index, item in enumerate(memory.storages)
        ]
        for value, bank in (pinned or {}).items():
            if value in memory.of:
                self._merged[memory.of[value]].bank = bank
        self._read: dict[tuple[int, int], set[int]] = defaultdict(set)
        for use in memory.reaching.uses:
            self._read[use.position, use.value].add(use.place)

    def places(self, position: int, value: int) -> Collection[int]:
        """Return the values at whose addresses ``value`` may be when the instruction at ``position`` reads it."""
        return self._read.get((position, value), ())

    def storage_of(self, value: int) -> MergedStorage | None:
        """Return the merged storage of a value, or None if the value is not in planned memory."""
        number = self.memory.of.get(value)
        return None if number is None else self._merged[number]

    def offset(self, value: int) -> int:
        """Return the offset of a value in bytes from the start of the value's merged storage."""
        number = self.memory.of[value]
        inside = self.memory.reaching.places[value].start - self.memory.storages[number].offset
        return self._merged[number].members[number] + inside

    def place_when_read(self, position: int, value: int) -> int:
        """Return the value at whose planned address ``value`` is located when the instruction at ``position`` reads it.

        Raises :class:`Refused` if ``value`` has no such address, or several of them.
        """
        found = self.places(position, value)
        elsewhere = (position, value) in self.memory.reaching.elsewhere
        if len(found) != 1 or elsewhere:
            raise Refused("may be one of several tensors" if found else "is in memory that is not planned")
        return next(iter(found))

    def storage_at(self, place: int) -> MergedStorage:
        """Return the merged storage of a value, which must be in planned memory."""
        return self._merged[self.memory.of[place]]

    def tensor(self, value: int) -> m.Tensor:
        """Return a tensor of the method, with its address before the merges."""
        return self.plan.tensor(value)

    def own_storage(self, position: int, out: int) -> MergedStorage:
        """Return an output's storage. Raise ``Refused`` unless this instruction is the first to use that storage."""
        found = self.storage_of(out)
        if found is None:
            raise Refused("the memory of its output is not planned")
        if out in self.memory.reaching.references:
            raise Refused("the address of its output is known only at run time")
        if found.persistent:
            raise Refused("its output is state")
        if not self.fills_storage(out):
            raise Refused("its output is a part of another tensor")
        if found.start != position + 1:
            raise Refused("the memory of its output is already in use")
        return found

    def fills_storage(self, value: int) -> bool:
        """Return whether a tensor occupies all bytes of its merged storage."""
        found = self.storage_of(value)
        tensor = self.plan.values[value]
        return found is not None and isinstance(tensor, m.Tensor) and tensor.nbytes == found.size

    def values(self, storage: MergedStorage) -> Iterator[int]:
        """Return all values in a merged storage."""
        return (value for number in storage.members for value in self.memory.storages[number].values)

    def may_share(self, one: MergedStorage, other: MergedStorage) -> bool:
        """Return whether two storages may be in one buffer and in one bank."""
        return self.memory_id(one) == self.memory_id(other) and (
            one.bank is None or other.bank is None or one.bank == other.bank
        )

    def memory_id(self, storage: MergedStorage) -> int:
        """Return the planned buffer of a merged storage."""
        return self.memory.storages[storage.number].memory_id

    def all(self) -> list[MergedStorage]:
        """Return all merged storages, each once."""
        return [storage for number, storage in enumerate(self._merged) if storage.number == number]

    def merge(self, inner: MergedStorage, outer: MergedStorage, at: int = 0) -> None:
        """Merge ``inner`` into ``outer``, at an offset of ``at`` bytes."""
        outer.bank = outer.bank or inner.bank
        outer.start, outer.end = min(outer.start, inner.start), max(outer.end, inner.end)
        few, many = sorted((inner.writes, outer.writes), key=len)
        for write in few:
            index = bisect_left(many, write)
            if many[index : index + 1] != [write]:
                many.insert(index, write)
        outer.writes = many
        for number, offset in inner.members.items():
            outer.members[number] = at + offset
            self._merged[number] = outer

    def add(self, value: m.Value) -> int:
        """Add a value to the method; return its index."""
        self._new.append(value)
        return len(self.plan.values) + len(self._new) - 1

    def add_part(self, tensor: m.Tensor, whole: int, offset: int) -> int:
        """Add a tensor that is a part of the tensor ``whole``; return its index. ``offset`` is in bytes."""
        index = self.add(tensor)
        self._slots[index] = whole, offset
        return index

    def parts(self) -> dict[int, int]:
        """Map each tensor that :meth:`add_part` added to the tensor that contains it."""
        return {index: whole for index, (whole, _) in self._slots.items()}

    def applied(self) -> tuple[m.ExecutionPlan, dict[int, int]]:
        """Return the method with all merges and changes applied, and a map from old to new positions of instructions.

        Values in a merged storage get addresses inside that storage.
        """
        values = [*self.plan.values, *self._new]
        for storage in self.all():
            base = self.memory.storages[storage.number]
            for value in self.values(storage) if len(storage.members) > 1 else ():
                place = m.AllocationDetails(base.memory_id, base.offset + self.offset(value))
                values[value] = placed_at(values[value], place)
        for index, (whole, offset) in self._slots.items():
            base = self.memory.storages[self.storage_at(whole).number]
            place = m.AllocationDetails(base.memory_id, base.offset + self.offset(whole) + offset)
            values[index] = placed_at(values[index], place)
        return with_instructions(replace(self.plan, values=tuple(values)), self.changed)
