"""Storages of a method: groups of tensors that share bytes on purpose, and the lifetime of each group.

A memory plan puts many tensors at the same bytes at different times. The data flow shows which tensors belong together.
If a read of one tensor finds bytes that a write to another tensor produced, the two tensors belong together. Examples
are a view, a mutated buffer and its result, and the parts of a concatenation. An output that overwrites an operand
belongs with that operand. In an object program, only aliases share bytes. So each group contains exactly one tensor and
its aliases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from etdev.errors import LinkError
from etdev.program import model as m
from etdev.program.analysis.contents import BEFORE
from etdev.program.analysis.effects import DelegateInputs, instruction_name
from etdev.program.analysis.liveness import lifetimes
from etdev.program.analysis.reaching import Kind, Place, Reaching, Use, reaching


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that must stay together: those of one tensor, or of several tensors that alias each other.

    Time is counted in instants. At instant 0, the caller fills the inputs. The instruction at position p runs at
    instant 1 + p. At the last instant, 1 + the number of instructions, the caller reads the outputs.
    """

    values: tuple[int, ...]
    """Tensors whose places form the storage."""
    memory_id: int
    offset: int
    """Offset of the first byte from the start of the planned buffer."""
    size: int
    """Size in bytes."""
    start: int
    """First instant at which the bytes are in use."""
    end: int
    """First instant at which the bytes are free again. Equal to ``start`` if the bytes are never used."""
    persistent: bool
    """True if the storage keeps its content from one call to the next. Such a storage is in use at all times."""
    writes: tuple[int, ...]
    """Instants at which the storage is written, in ascending order."""


@dataclass(frozen=True, slots=True)
class MethodMemory:
    """All planned memory of a method."""

    storages: tuple[Storage, ...]
    """Storages in the order of their first value."""
    of: Mapping[int, int]
    """Maps the value index of a tensor in planned memory to the index of its storage in ``storages``."""
    instants: int
    """Number of instants."""
    reaching: Reaching
    """Data flow from which the storages were found."""


def method_memory(
    plan: m.ExecutionPlan, delegate_inputs: DelegateInputs, persistent: Iterable[int] = ()
) -> MethodMemory:
    """Find the storages of a method.

    ``persistent`` contains tensors that keep their content between calls, even if no instruction, input or output
    refers to them. Three more kinds of tensors are persistent:

    * tensors that are read before they are written
    * tensors with an initial value
    * tensors that are named after a buffer of the module

    Raises :class:`~etdev.errors.LinkError` if an instruction reads bytes of a tensor after a write to another tensor
    overwrote them. No program does so on purpose.
    """
    persistent = frozenset(persistent)
    found = reaching(plan, delegate_inputs, persistent)
    _refuse_clobbered(plan, found)
    groups = _Groups(found.places)
    for use in found.uses:
        for number in use.writes - {BEFORE}:
            groups.unite(use.place, found.writes[number - 1].place)
    for one, other in _in_place(found):
        groups.unite(one, other)
    kept = {*persistent, *_declared_persistent(plan), *_read_before_written(plan, found)}
    _unite_persisted(found, groups, kept)
    roots = {groups.root(value) for value in kept if value in found.places}
    members: dict[int, list[int]] = defaultdict(list)
    for value in found.places:
        members[groups.root(value)].append(value)
    index_of = {root: index for index, root in enumerate(members)}
    belongs = {value: index_of[groups.root(value)] for value in found.places}
    instants = len(found.flow.instructions) + 2
    return MethodMemory(_storages(found, members, belongs, roots, instants), belongs, instants, found)


def _declared_persistent(plan: m.ExecutionPlan) -> set[int]:
    """Return the planned tensors that have an initial value or are named after a buffer of the module."""
    return {
        index
        for index, tensor in plan.tensors()
        if tensor.has_initial_value or (tensor.allocation_info and tensor.name)
    }


def _read_before_written(plan: m.ExecutionPlan, found: Reaching) -> Iterator[int]:
    """Yield places that may still contain content from before the call when they are read.

    A write to a dynamic tensor covers only the tensor's current rows. So a read of a static tensor in the same bytes
    may find such content in the other rows.
    """
    dynamic = {index for index, tensor in plan.tensors() if not tensor.is_static}
    for use in found.uses:
        written_by = {found.writes[number - 1].place for number in use.writes - {BEFORE}}
        if BEFORE in use.writes or (use.place not in dynamic and written_by & dynamic):
            yield use.place


def _in_place(found: Reaching) -> Iterator[tuple[int, int]]:
    """Yield pairs: an operand, and an output that the same instruction writes over the operand."""
    written: dict[tuple[int, Place], int] = {
        (write.position, found.places[write.place]): write.place for write in found.writes if write.kind is Kind.ALL
    }
    for use in found.uses:
        out = written.get((use.position, found.places[use.place]))
        if out is not None:
            yield use.place, out


def _unite_persisted(found: Reaching, groups: _Groups, kept: Iterable[int]) -> None:
    """Unite state with the tensors whose writes may have produced the state's bytes at the end of the method.

    The next call reads these bytes as state.
    """
    waiting = [value for value in kept if value in found.places]
    _unite_overlapping(found, groups, waiting)
    while waiting:
        value = waiting.pop()
        for number in found.at_exit(value) - {BEFORE}:
            other = found.writes[number - 1].place
            if groups.root(other) != groups.root(value):
                groups.unite(value, other)
                waiting.append(other)


def _unite_overlapping(found: Reaching, groups: _Groups, kept: Iterable[int]) -> None:
    """Unite state tensors that overlap. If a method only reads a buffer, no write connects the buffer and its views."""
    furthest: int | None = None
    for value in sorted(kept, key=lambda value: (found.places[value].buffer, found.places[value].start)):
        place = found.places[value]
        if furthest is not None:
            before = found.places[furthest]
            if before.buffer == place.buffer and place.start < before.end:
                groups.unite(furthest, value)
                if place.end <= before.end:
                    continue
        furthest = value


def _storages(
    found: Reaching,
    members: Mapping[int, Sequence[int]],
    of: Mapping[int, int],
    persistent: Container[int],
    instants: int,
) -> tuple[Storage, ...]:
    """Return the storages that groups of values form.

    ``members`` maps the root of each group to the group's values. ``of`` maps each value to the index of its group.
    ``persistent`` contains the roots of the groups that are state.
    """
    extents = [_extent(found, values) for values in members.values()]

    def covers(value: int) -> bool:
        place, extent = found.places[value], extents[of[value]]
        return place.end - place.start == extent.end - extent.start

    spans = lifetimes(found, of, covers)
    written: dict[int, set[int]] = defaultdict(set)
    for write in found.writes:
        written[of[write.place]].add(write.position + 1)
    storages = []
    for index, ((root, values), extent) in enumerate(zip(members.items(), extents, strict=True)):
        start, end = (0, instants) if root in persistent else spans.get(index, (0, 0))
        storages.append(
            Storage(
                values=tuple(values),
                memory_id=extent.buffer,
                offset=extent.start,
                size=extent.end - extent.start,
                start=start,
                end=end,
                persistent=root in persistent,
                writes=tuple(sorted(written[index])),
            )
        )
    return tuple(storages)


def _extent(found: Reaching, values: Iterable[int]) -> Place:
    """Return the smallest place that contains all of these values, which are in the same buffer."""
    places = [found.places[value] for value in values]
    return Place(places[0].buffer, min(place.start for place in places), max(place.end for place in places))


def _refuse_clobbered(plan: m.ExecutionPlan, found: Reaching) -> None:
    """Raise :class:`~etdev.errors.LinkError` for a read of bytes that another tensor has overwritten.

    The check skips a tensor without a complete write. Such a tensor is an alias, so its content comes from other
    tensors. The check also skips a tensor that is filled piece by piece, because its unread pieces may have any
    content.
    """
    filled = {write.place for write in found.writes if write.kind is Kind.FILL}
    replaced = {write.place for write in found.writes if write.kind is Kind.ALL} - filled
    for use in found.uses:
        if use.place not in replaced:
            continue
        for number in sorted(use.writes - {BEFORE}):
            write = found.writes[number - 1]
            if write.place != use.place and write.kind is Kind.ALL:
                raise _clobbered(plan, found, use, write.position)


def _clobbered(plan: m.ExecutionPlan, found: Reaching, use: Use, by: int) -> LinkError:
    place = found.places[use.place]
    value = f"value {use.value}" + (f" (here the tensor of value {use.place})" if use.value != use.place else "")
    return LinkError(
        f"{describe_position(plan, found, use.position)} reads {value} at bytes {place.start} to {place.end} of buffer "
        f"{place.buffer} after {describe_position(plan, found, by)} overwrote these bytes",
        where=f"method {plan.name!r}",
        hint="build the program again from its model with etdev: the plan of this file is wrong",
    )


def describe_position(plan: m.ExecutionPlan, found: Reaching, position: int) -> str:
    """Describe a position in words: ``instruction 12 (aten::add.out)``."""
    if position < 0:
        return "the caller (inputs)"
    if position >= len(found.flow.instructions):
        return "the caller (outputs)"
    return f"instruction {position} ({instruction_name(plan, found.flow.instructions[position])})"


class _Groups:
    """Disjoint sets of values."""

    def __init__(self, values: Iterable[int]) -> None:
        self._parent = {value: value for value in values}

    def root(self, value: int) -> int:
        while self._parent[value] != value:
            self._parent[value] = self._parent[self._parent[value]]
            value = self._parent[value]
        return value

    def unite(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self._parent[high] = low
