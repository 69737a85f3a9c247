"""From when to when each storage of a method is in use, over branches and loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from etdev.program.contents import BEFORE
from etdev.program.flow import FlowGraph
from etdev.program.reaching import Kind, Reaching


@dataclass(slots=True)
class _Accesses:
    """What one block does to storages. Sets of storages are bits of an integer."""

    first: dict[int, int]
    """Storage → position of its first access."""
    last: dict[int, int]
    exposed: int = 0
    """Storages that are read before all of them is written."""
    replaced: int = 0
    """Storages all of which is written before any is read."""
    written: int = 0
    """Storages of which something is written."""


def lifetimes(found: Reaching, of: Mapping[int, int], covers: Callable[[int], bool]) -> dict[int, tuple[int, int]]:
    """Storage → the first instant at which it is in use, and the first one at which it is so no more.

    A storage is in use where it is written, and wherever something was written that may be read later. The instants
    between the first and the last one count as well, also where a branch lies between them in the file that does not
    need it: no two storages whose lifetimes are disjoint are ever in use at once. ``of`` maps a value to its storage,
    ``covers`` says if the value's place is all of it.
    """
    blocks = [*found.flow.blocks]
    accesses = _accesses(found, of, covers)
    reached = found.flow.order()
    live_in, live_out = _backward(found.flow, reached, accesses)
    made_in, made_out = _forward(found, of, reached, accesses)
    spans: dict[int, tuple[int, int]] = {}

    def extend(storage: int, start: int, end: int) -> None:
        low, high = spans.get(storage, (start, end))
        spans[storage] = min(low, start), max(high, end)

    # The caller's accesses have blocks of their own, before the first and behind the last one.
    for number in (*reached, _ENTRY, found.flow.exit):
        access = accesses[number]
        for storage, position in access.first.items():
            extend(storage, position + 1, access.last[storage] + 2)
        if number in (_ENTRY, found.flow.exit):
            continue
        for storage in _bits(live_in[number] & made_in[number]):
            extend(storage, blocks[number].start + 1, blocks[number].start + 2)
        for storage in _bits(live_out[number] & made_out[number]):
            extend(storage, blocks[number].end, blocks[number].end + 1)
    return spans


_ENTRY = -1


def _accesses(found: Reaching, of: Mapping[int, int], covers: Callable[[int], bool]) -> dict[int, _Accesses]:
    """By block; the caller's at :data:`_ENTRY` and at the exit."""
    events: dict[int, list[tuple[int, bool]]] = defaultdict(list)  # position → storage, whether all of it is replaced
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
        access = _Accesses({}, {})
        for position in range(start, end):
            for storage, replaces in events.get(position, ()):
                bit = 1 << storage
                access.first.setdefault(storage, position)
                access.last[storage] = position
                if replaces:
                    access.replaced |= bit & ~access.exposed
                elif (position, storage) in reads:
                    access.exposed |= bit & ~access.replaced
                if (position, storage) in written:
                    access.written |= bit
        result[number] = access
    return result


def _backward(
    flow: FlowGraph, reached: list[int], accesses: Mapping[int, _Accesses]
) -> tuple[dict[int, int], dict[int, int]]:
    """Storages whose content may still be read: before and after each block."""
    live_in = dict.fromkeys(reached, 0) | {flow.exit: accesses[flow.exit].exposed}
    live_out = dict.fromkeys(reached, 0)
    changed = True
    while changed:
        changed = False
        for number in reversed(reached):
            out = 0
            for successor in flow.blocks[number].successors:
                out |= live_in[successor]
            into = accesses[number].exposed | (out & ~accesses[number].replaced)
            if into != live_in[number] or out != live_out[number]:
                live_in[number], live_out[number] = into, out
                changed = True
    return live_in, live_out


def _forward(
    found: Reaching, of: Mapping[int, int], reached: list[int], accesses: Mapping[int, _Accesses]
) -> tuple[dict[int, int], dict[int, int]]:
    """Storages that may have a content: before and after each block."""
    start = accesses[_ENTRY].written
    for use in found.uses:
        if BEFORE in use.writes:
            start |= 1 << of[use.place]
    made_in = dict.fromkeys(reached, 0)
    if reached:
        made_in[reached[0]] = start
    made_out = dict.fromkeys(reached, 0)
    changed = True
    while changed:
        changed = False
        for number in reached:
            out = made_in[number] | accesses[number].written
            if out != made_out[number]:
                made_out[number] = out
                changed = True
            for successor in found.flow.blocks[number].successors:
                if successor != found.flow.exit and out & ~made_in[successor]:
                    made_in[successor] |= out
                    changed = True
    return made_in, made_out


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
