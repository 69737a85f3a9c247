"""Lifetimes of a method's storages, over branches and loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from etdev.program.analysis.contents import BEFORE
from etdev.program.analysis.flow import FlowGraph
from etdev.program.analysis.persistent import Node, differences, room, united, value_at, with_members
from etdev.program.analysis.reaching import Kind, Reaching


@dataclass(slots=True)
class _Accesses:
    """Accesses of one block to storages."""

    first: dict[int, int] = field(default_factory=dict)
    """Maps a storage to the position of the block's first access to it."""
    last: dict[int, int] = field(default_factory=dict)
    exposed: set[int] = field(default_factory=set)
    """Storages that the block reads before overwriting all of their bytes."""
    replaced: set[int] = field(default_factory=set)
    """Storages that the block overwrites completely before reading them."""
    written: set[int] = field(default_factory=set)
    """Storages that the block writes at least in part."""


def lifetimes(found: Reaching, of: Mapping[int, int], covers: Callable[[int], bool]) -> dict[int, tuple[int, int]]:
    """Map each storage to its lifetime: its first instant of use, and the first instant after its last use.

    A storage is in use when it is written, and while written content may still be read. Its lifetime covers all
    instants between its first and last use. That includes branches in between that do not need the storage. So two
    storages with disjoint lifetimes are never in use at the same time.

    ``of`` maps a value to its storage. ``covers`` returns True for a value whose bytes are the whole storage.
    """
    accesses = _accesses(found, of, covers)
    reached = found.flow.order()
    size = room(max(of.values(), default=-1) + 1)
    live_in, live_out = _backward(found.flow, reached, accesses, size)
    made_in, made_out = _forward(found, of, reached, accesses, size)
    spans: dict[int, tuple[int, int]] = {}

    def extend(storage: int, start: int, end: int) -> None:
        low, high = spans.get(storage, (start, end))
        spans[storage] = min(low, start), max(high, end)

    # The caller's accesses have blocks of their own, before the first and after the last one.
    for number in (*reached, _ENTRY, found.flow.exit):
        access = accesses[number]
        for storage, position in access.first.items():
            extend(storage, position + 1, access.last[storage] + 2)
    points: list[tuple[int, Node, Node]] = []
    for number in sorted(reached):
        block = found.flow.blocks[number]
        points += [(block.start + 1, live_in[number], made_in[number]), (block.end, live_out[number], made_out[number])]
    for storage, first, last in _stretches(points, size):
        extend(storage, first, last + 1)
    return spans


def _stretches(points: Iterable[tuple[int, Node, Node]], size: int) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of instants at which a storage is in use, as ``(storage, first, last)``.

    Each item of ``points`` contains an instant and two sets of storages: those that may still be read, and those that
    may have content. A storage that is in both sets is in use at that instant.
    """
    since: dict[int, int] = {}
    before: tuple[int, Node, Node] = (0, False, False)
    for point in chain(points, [(0, False, False)]):
        instant, live, made = point
        for storage in {*differences(before[1], live, size), *differences(before[2], made, size)}:
            in_use = value_at(live, size, storage) and value_at(made, size, storage)
            if in_use and storage not in since:
                since[storage] = instant
            elif not in_use and storage in since:
                yield storage, since.pop(storage), before[0]
        before = point


_ENTRY = -1


def _accesses(found: Reaching, of: Mapping[int, int], covers: Callable[[int], bool]) -> dict[int, _Accesses]:
    """Map the index of each block to the accesses of the block.

    The index :data:`_ENTRY` maps to the caller's writes of inputs and state. The index of the exit maps to the caller's
    reads of outputs and state.
    """
    events: dict[int, list[tuple[int, bool]]] = defaultdict(list)  # position → storage, whether it is fully replaced
    for use in found.uses:
        events[use.position].append((of[use.place], False))
    reads = {(use.position, of[use.place]) for use in found.uses}
    doubtful = {(write.position, write.place) for write in found.writes if not write.certain}
    for write in found.writes:
        doubted = (write.position, write.place) in doubtful
        whole = write.kind is Kind.ALL and not doubted and covers(write.place)
        storage = of[write.place]
        events[write.position].append((storage, whole and (write.position, storage) not in reads))
    written = {(write.position, of[write.place]) for write in found.writes}
    count = len(found.flow.instructions)
    spans = {number: (block.start, block.end) for number, block in enumerate(found.flow.blocks)}
    spans |= {_ENTRY: (-1, 0), found.flow.exit: (count, count + 1)}
    result = {}
    for number, (start, end) in spans.items():
        access = _Accesses()
        for position in range(start, end):
            for storage, replaces in events.get(position, ()):
                access.first.setdefault(storage, position)
                access.last[storage] = position
                if replaces and storage not in access.exposed:
                    access.replaced.add(storage)
                elif not replaces and (position, storage) in reads and storage not in access.replaced:
                    access.exposed.add(storage)
                if (position, storage) in written:
                    access.written.add(storage)
        result[number] = access
    return result


def _backward(
    flow: FlowGraph, reached: Sequence[int], accesses: Mapping[int, _Accesses], size: int
) -> tuple[dict[int, Node], dict[int, Node]]:
    """Return two maps from a block to the set of storages whose content may still be read.

    The first map is for the start of the block, the second for its end.
    """
    live_in: dict[int, Node] = dict.fromkeys(reached, False)
    live_in[flow.exit] = with_members(False, size, accesses[flow.exit].exposed, True)
    live_out: dict[int, Node] = dict.fromkeys(reached, False)
    heads = flow.heads()
    changed = True
    while changed:
        changed = False
        for number in reversed(reached):
            out: Node = False
            for successor in flow.blocks[number].successors:
                out = united(out, live_in[successor])
            access = accesses[number]
            into = with_members(with_members(out, size, access.replaced, False), size, access.exposed, True)
            live_out[number] = out
            if into != live_in[number]:
                live_in[number] = into
                changed = changed or number in heads
    return live_in, live_out


def _forward(
    found: Reaching, of: Mapping[int, int], reached: Sequence[int], accesses: Mapping[int, _Accesses], size: int
) -> tuple[dict[int, Node], dict[int, Node]]:
    """Return two maps from a block to the set of storages that may have content.

    The first map is for the start of the block, the second for its end.
    """
    start = accesses[_ENTRY].written | {of[use.place] for use in found.uses if BEFORE in use.writes}
    made_in: dict[int, Node] = dict.fromkeys(reached, False)
    if reached:
        made_in[reached[0]] = with_members(False, size, start, True)
    made_out: dict[int, Node] = dict.fromkeys(reached, False)
    heads = found.flow.heads()
    changed = True
    while changed:
        changed = False
        for number in reached:
            out = with_members(made_in[number], size, accesses[number].written, True)
            if out != made_out[number]:
                made_out[number] = out
            for successor in found.flow.blocks[number].successors:
                if successor != found.flow.exit:
                    into = united(made_in[successor], made_out[number])
                    changed = changed or (successor in heads and into != made_in[successor])
                    made_in[successor] = into
    return made_in, made_out
