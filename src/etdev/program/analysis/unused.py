"""Bytes of planned buffers that are not in use while an instruction runs. Runtimes fill these bytes with poison."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from etdev.program.analysis.storage import MethodMemory, Storage

Range = tuple[int, int, int]
"""Index of a planned buffer, first byte and end byte (exclusive)."""

CALL = -1
"""Position that represents the start of a call, before the caller sets the inputs."""


def unused_ranges(storages: Sequence[Storage], before: int | None, instant: int) -> list[Range]:
    """Return the bytes that were in use at the instant ``before`` and are not in use at ``instant``.

    If ``before`` is None, return all bytes of storages that are not in use at ``instant``.
    """
    live: dict[int, list[tuple[int, int]]] = defaultdict(list)
    gone = []
    for storage in storages:
        if is_live(storage, instant):
            live[storage.memory_id].append((storage.offset, storage.offset + storage.size))
        elif storage.size and (before is None or is_live(storage, before)):
            gone.append(storage)
    if not gone:
        return []
    for spans in live.values():
        spans.sort()
    return [
        (storage.memory_id, start, end)
        for storage in gone
        for start, end in without((storage.offset, storage.offset + storage.size), live.get(storage.memory_id, ()))
    ]


def is_live(storage: Storage, instant: int) -> bool:
    """Return whether the bytes of a storage are in use at an instant."""
    return storage.persistent or storage.start <= instant < storage.end


def without(whole: tuple[int, int], taken: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of the range ``whole`` that are outside of all ranges in ``taken``, which must be sorted."""
    found = []
    start, end = whole
    for low, high in taken:
        if high <= start:
            continue
        if low >= end:
            break
        if low > start:
            found.append((start, low))
        start = high
    if start < end:
        found.append((start, end))
    return found


def unused_before(plan: m.ExecutionPlan, memory: MethodMemory, kept: Iterable[Range] = ()) -> Mapping[int, list[Range]]:
    """Map the position of each instruction to the bytes that go out of use before it. :data:`CALL` is a call's start.

    Such bytes were in use at an instruction that can run directly before the position. At the start of a call,
    all unused bytes count. ``kept`` is the state of other methods in the same memory; these bytes do not count.
    """
    storages = [storage for storage in memory.storages if storage.size]
    found = {CALL: unused_ranges(storages, None, 0)}
    graph = flow_graph(plan)
    for instant, ranges in unused_in_turn(storages).items():
        if instant <= len(graph.instructions):
            found[instant - 1] = ranges
    for block in graph.blocks:
        for successor in block.successors:
            if successor != graph.exit and graph.blocks[successor].start != block.end:
                start = graph.blocks[successor].start
                found.setdefault(start, []).extend(unused_ranges(storages, block.end, 1 + start))
    state: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for buffer, start, end in kept:
        state[buffer].append((start, end))
    for spans in state.values():
        spans.sort()
    return {
        position: [
            (buffer, low, high)
            for buffer, start, end in ranges
            for low, high in without((start, end), state.get(buffer, ()))
        ]
        for position, ranges in found.items()
        if ranges
    }


def unused_in_turn(storages: Sequence[Storage]) -> dict[int, list[Range]]:
    """Map each instant to the bytes that were in use at the instant before and are not in use at this one.

    The result has the instants from 1 on with such bytes. They are those of :func:`unused_ranges`, in much less time.
    """
    found: dict[int, list[Range]] = {}
    begins: dict[int, list[Storage]] = defaultdict(list)
    ends: dict[int, list[Storage]] = defaultdict(list)
    active: dict[int, dict[int, Storage]] = defaultdict(dict)
    for storage in storages:
        if storage.persistent:
            active[storage.memory_id][id(storage)] = storage
        elif storage.start < storage.end and storage.size:
            begins[storage.start].append(storage)
            ends[storage.end].append(storage)
    for instant in sorted(begins.keys() | ends.keys()):
        over = ends.get(instant, [])
        for storage in over:
            active[storage.memory_id].pop(id(storage), None)
        for storage in begins.get(instant, []):
            active[storage.memory_id][id(storage)] = storage
        ranges = [
            (storage.memory_id, low, high)
            for storage in over
            for low, high in _free_parts(storage, active[storage.memory_id].values())
        ]
        if ranges and instant > 0:
            found[instant] = ranges
    return found


def _free_parts(storage: Storage, active: Iterable[Storage]) -> list[tuple[int, int]]:
    start, end = storage.offset, storage.offset + storage.size
    taken = [(other.offset, other.offset + other.size) for other in active]
    return without((start, end), sorted((low, high) for low, high in taken if low < end and start < high))
