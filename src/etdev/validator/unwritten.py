"""Values of a single file that no instruction writes, although instructions write other values to the same bytes.

Most of these values are views and slices, which share bytes on purpose. For the others, an instruction is missing, and
the bytes still hold an earlier value. The module looks for two traces of a missing instruction:

* The bytes hold a value of another element type.
* An earlier result of the same type and sizes is never read. The missing instruction should have read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from etdev.program import model as m
from etdev.validator.facts import CONSTANT, Code, Facts
from etdev.validator.semantics.operators import Act

Write: TypeAlias = tuple[int, int]
"""Position of an instruction, and the value that it writes. Position -1 is the caller, which fills the inputs."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A value whose write is missing."""

    reader: Code | None
    """First instruction that reads the value, or None if only the caller reads it."""
    value: int
    write: Write
    """Write that shows the fault. Either the bytes come from this write, or no instruction reads the written value."""
    another_type: bool
    """True if the bytes come from ``write`` and have another element type."""
    certain: bool
    """False if a valid file could also contain such a read."""


@dataclass(slots=True)
class Unwritten:
    """Record of the reads in a method, used to find values whose write is missing."""

    facts: Facts
    devices: Collection[int]
    """Numbers of the planned buffers on devices."""
    _reads: dict[Write, set[Write]] = field(default_factory=dict)
    """Maps each write to the reads of its result, as ``(position of the reader, value)``."""
    _suspects: dict[int, set[Write]] = field(default_factory=dict)
    """Maps each value that is read but never written to the writes of other values that filled its bytes."""
    state: set[tuple[int, int, int]] = field(default_factory=set)
    """Places that are read before they are written, as buffer, first byte and end byte (exclusive)."""
    _named: Counter[int] = field(init=False)
    """Maps each value to the number of instructions that refer to it."""
    _touched: frozenset[int] = field(init=False)
    """Inputs, and values that an instruction writes, updates or redirects to another place."""

    def __post_init__(self) -> None:
        code = self.facts.code
        written = {value for item in code for value in (*item.writes, *item.updates)}
        self._named = Counter(value for item in code for value in self._names(item))
        self._touched = frozenset({*written, *self.facts.roving, *self.facts.plan.inputs})

    def _names(self, code: Code) -> set[int]:
        moved = (code.call.move_from, code.call.move_to) if isinstance(code.call, m.MoveCall) else ()
        return {*self.facts.list_tensors((*code.reads, *moved)), *code.writes, *code.updates}

    def note_state(self, place: tuple[int, int, int]) -> None:
        """Record a read of bytes that the method has not written."""
        self.state.add(place)

    def note_read(self, code: Code | None, value: int, owners: Collection[int], writes: Collection[Write]) -> None:
        """Record a read of a value.

        ``code`` is the reader, or None for the caller. A write of one of the ``owners`` would make the read valid.
        ``writes`` are the writes from which the bytes come.
        """
        position = len(self.facts.code) if code is None else code.position
        for write in writes:
            self._reads.setdefault(write, set()).add((position, value))
        if writes and self._touched.isdisjoint((*owners, value)):
            self._suspects.setdefault(value, set()).update(writes)

    def find(self) -> Iterator[Missing]:
        """Yield each value whose write is missing, as shown by one of the traces in the module's description."""
        unread = list(self._unread())
        for value, writes in sorted(self._suspects.items()):
            first = min(at for write in writes for at, read in self._reads[write] if read == value)
            reader = self.facts.code[first] if first < len(self.facts.code) else None
            holds = min((write for write in writes if not self._has_type_of(value, write)), default=None)
            if holds is not None:
                yield Missing(reader, value, holds, another_type=True, certain=True)
                continue
            if self._is_state(value):
                continue
            before = [(write, alone) for write, alone in unread if write[0] < first and self._are_alike(value, write)]
            over = self._is_over(value, writes, first)
            for write, alone in before:
                sides = {self._is_on_device(value), self._is_on_device(write[1])}
                if (alone or over) if len(sides) > 1 else (alone and over):
                    # A kernel on the host may compute a value that nothing reads. A copy or a delegate does not.
                    yield Missing(reader, value, write, another_type=False, certain=True in sides)
                    break
        yield from self._without_copy(unread)

    def _without_copy(self, unread: list[tuple[Write, bool]]) -> Iterator[Missing]:
        """Yield each delegate input on a device, if the copy of the input from the host is missing.

        The file does not state which arguments of a delegate are inputs. An argument counts as an input without a copy
        under two conditions. No other instruction refers to the argument. And an earlier value on the host, of the same
        type and sizes, is never read.
        """
        for (position, value), _ in unread:
            code = self.facts.code[position] if position >= 0 else None
            if code is None or code.act is not Act.DELEGATE or not self._is_on_device(value):
                continue
            for write, _ in unread:
                there = self._is_on_device(write[1])
                if write[0] < position and not there and self._are_alike(value, write):
                    yield Missing(code, value, write, another_type=False, certain=True)
                    break

    def _has_type_of(self, value: int, write: Write) -> bool:
        tensors = self.facts.tensors
        return write[1] in self.facts.roving or tensors[value].kind[0] == tensors[write[1]].kind[0]

    def _are_alike(self, value: int, write: Write) -> bool:
        one, other = self.facts.tensors[value], self.facts.tensors[write[1]]
        return (one.kind, one.sizes) == (other.kind, other.sizes)

    def _is_on_device(self, value: int) -> bool:
        place = self.facts.tensors[value].place
        return place is not None and place[0] in self.devices

    def _is_over(self, value: int, writes: Collection[Write], first: int) -> bool:
        """Return True if the result of each write is read under other values than ``value``, and only before ``first``.

        ``first`` is the position of the first read of ``value``.
        """
        others = [[at for at, read in self._reads[write] if read != value] for write in writes]
        return all(found and max(found) < first for found in others)

    def _unread(self) -> Iterator[tuple[Write, bool]]:
        """Yield ``(write, alone)`` for each write whose result no instruction reads.

        ``alone`` is True if all results of the instruction are unread. For an input, ``alone`` is False, because a
        method need not read all its inputs.
        """
        for value in self.facts.plan.inputs:
            if value in self.facts.tensors and not self._named[value] and self._is_unread(-1, value):
                yield (-1, value), False
        for code in self.facts.code:
            if code.act in (Act.COMPUTE, Act.DELEGATE) and not code.updates:
                found = [
                    item for item in code.writes if self._named[item] == 1 and self._is_unread(code.position, item)
                ]
                for value in found:
                    yield (code.position, value), len(found) == len(code.writes)

    def _is_unread(self, position: int, value: int) -> bool:
        place = self.facts.tensors[value].place
        if (position, value) in self._reads or value in self.facts.roving or place is None or place[0] <= CONSTANT:
            return False
        return not self._is_state(value)

    def _is_state(self, value: int) -> bool:
        tensor = self.facts.tensors[value]
        if tensor.place is None:
            return False
        buffer, start = tensor.place
        return any(place[0] == buffer and place[1] < tensor.end and start < place[2] for place in self.state)
