"""Joining the states of several paths into one state, at the point where the paths merge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from etdev.validator.agree import Agreement
from etdev.validator.domain import numbers
from etdev.validator.domain.counts import Counts
from etdev.validator.domain.memory import Cell, Memory, size
from etdev.validator.domain.numbers import Dims
from etdev.validator.domain.state import (
    DIMS,
    MEMORY,
    NUMBER,
    PLACE,
    REFERENCE,
    Entry,
    Log,
    Number_,
    Shadow,
    State,
    Tree,
    Unknown,
    changes,
    choice,
    mentions,
)
from etdev.validator.domain.symbols import OTHER
from etdev.validator.machine import Machine
from etdev.validator.reading import NotFollowedError

OF_OLDER_ROUND = "the tensor to which a value refers depends on more than the last iteration of a loop"
Slot = tuple[int, int]
"""A space (range of addresses) of one program, as ``(side, space)``. Side 0 is the program before the link."""


def join(machine: Machine, agreement: Agreement, merge: int, states: Sequence[State]) -> State:
    """Return the state at a merge, given the states of the paths into that merge. Do not use ``states`` afterwards."""
    if len(states) == 1:
        return states[0]
    common, entries = changes(states)
    result = states[0]
    shadows = _join_shadows(machine, agreement, merge, states)
    for slot, ranges in memory_ranges(entries).items():
        _join_memory(machine, agreement, merge, states, slot, ranges)
    for kind, side, value in (entry for entry in entries if entry[0] != MEMORY):
        if kind == NUMBER:
            result.numbers[side][value] = _join_numbers(
                machine, merge, [number_in(machine, state, side, value) for state in states]
            )
        elif kind == DIMS:
            result.dims[side][value] = machine.merges.dims(
                merge, [dims_in(machine, state, side, value) for state in states]
            )
        else:
            trees = [tree_in(state, kind, side, value) for state in states]
            result.table(kind, side)[value] = join_trees(merge, trees)
    result.counts = Counts.joined(machine.merges, merge, [state.counts for state in states])
    result.log = Log(common)
    result.log.entries = entries
    result.shadows = shadows
    return result


def _join_shadows(
    machine: Machine, agreement: Agreement, merge: int, states: Sequence[State]
) -> tuple[dict[int, Shadow], dict[int, Shadow]]:
    found: tuple[dict[int, Shadow], dict[int, Shadow]] = ({}, {})
    for side in (0, 1):
        for value in sorted({value for state in states for value in state.shadows[side]}):
            held = held_in(machine, states, side, value)
            if held is not None and len({(kind, len(dims), size(content)) for kind, dims, content in held}) == 1:
                contents = [agreement.canonical(content) if side else content for _, _, content in held]
                dims = machine.merges.dims(merge, [dims for _, dims, _ in held])
                found[side][value] = held[0][0], dims, machine.merges.content(merge, contents)
    return found


def held_in(machine: Machine, states: Sequence[State], side: int, value: int) -> list[Shadow] | None:
    """Return the content of a value in each state. Return None if any of these contents is unknown."""
    here = machine.state
    found: list[Shadow] = []
    try:
        for state in states:
            machine.state = state
            found.append(cast(Shadow, machine.tensor(side, value)))
    except NotFollowedError:
        return None
    finally:
        machine.state = here
    return found


def memory_ranges(entries: Iterable[Entry]) -> dict[Slot, list[tuple[int, int]]]:
    """Map each space to its changed byte ranges, as stated in log entries. Ranges are sorted and do not overlap."""
    found: dict[Slot, list[tuple[int, int]]] = defaultdict(list)
    for entry in entries:
        if entry[0] == MEMORY:
            _, side, space, start, end = entry
            found[side, space].append((start, end))
    return {slot: without_overlaps(ranges) for slot, ranges in found.items()}


def without_overlaps(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the sorted union of ranges. Ranges that overlap or touch become one range."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def pieces(
    agreement: Agreement, memories: Sequence[Memory], side: int, start: int, end: int
) -> Iterator[tuple[int, int, list[Cell]]]:
    """Split a byte range into the largest pieces that have a single cell in each memory.

    Yield ``(start, end, cells)`` for each piece, where ``cells`` has one cell for each memory.
    """
    lists = [list(_known_pieces(agreement, memory, side, start, end)) for memory in memories]
    at = [0] * len(lists)
    while start < end:
        heads = [found[index] for found, index in zip(lists, at, strict=True)]
        last = min(head[1] for head in heads)
        yield start, last, [head[2] for head in heads]
        at = [index + (head[1] == last) for index, head in zip(at, heads, strict=True)]
        start = last


def _known_pieces(
    agreement: Agreement, memory: Memory, side: int, start: int, end: int
) -> Iterator[tuple[int, int, Cell]]:
    for first, last, cell in memory.pieces(start, end):
        if side == 0:
            yield first, last, cell
            continue
        symbol, shift, valid = cell
        at = first
        for known, offset, length in agreement.canonical(((symbol, first - shift, last - first),)):
            yield at, at + length, (known, at - offset, valid)
            at += length


def _join_memory(
    machine: Machine,
    agreement: Agreement,
    merge: int,
    states: Sequence[State],
    slot: Slot,
    ranges: Sequence[tuple[int, int]],
) -> None:
    side, space = slot
    memories = [memory_in(machine, state, side, space) for state in states]
    found: list[tuple[int, int, Cell]] = []
    for start, end in ranges:
        for first, last, cells in pieces(agreement, memories, side, start, end):
            found.append((first, last, machine.merges.cell(merge, first, cells)))
    machine.spend(len(found))
    for first, last, cell in found:
        memories[0].write(first, last, cell)


def memory_in(machine: Machine, state: State, side: int, space: int) -> Memory:
    """Return the memory of a space in a state."""
    here, machine.state = machine.state, state
    found = machine.memory(side, space)
    machine.state = here
    return found


def number_in(machine: Machine, state: State, side: int, value: int) -> Number_:
    """Return the number that a value holds in a state."""
    here, machine.state = machine.state, state
    found = machine.number(side, value)
    machine.state = here
    return found


def dims_in(machine: Machine, state: State, side: int, value: int) -> Dims:
    """Return the sizes of a tensor in a state."""
    here, machine.state = machine.state, state
    found = machine.dims(side, value)
    machine.state = here
    return found


def tree_in(state: State, kind: int, side: int, value: int) -> Tree:
    """Return the tensor to which a value refers or, for the kind ``PLACE``, the place of a tensor, as a tree."""
    what = "a move" if kind == REFERENCE else "a view"
    return cast(Tree, state.table(kind, side).get(value, Unknown(f"value {value} is used before {what} sets it")))


def join_trees(merge: int, trees: Sequence[Tree]) -> Tree:
    """Return one tree for a merge: a choice between the trees of the paths that lead there.

    A tree that already contains this merge comes from an earlier iteration. In that case, return :class:`Unknown`.
    """
    if any(mentions(tree, {merge}) for tree in trees):
        return Unknown(OF_OLDER_ROUND)
    return choice(merge, tuple(trees))


def forget_older(state: State, merges: set[int]) -> None:
    """Replace trees that depend on one of ``merges`` by an unknown tree. The next iteration sets the trees again."""
    for side in (0, 1):
        for kind in (REFERENCE, PLACE):
            table = state.table(kind, side)
            for value, tree in table.items():
                if mentions(cast(Tree, tree), merges):
                    table[value] = Unknown(OF_OLDER_ROUND)


def _join_numbers(machine: Machine, merge: int, found: Sequence[Number_]) -> Number_:
    if all(part[0] == "i" for part in found):
        return "i", machine.merges.number(merge, [cast(numbers.Number, part[1]) for part in found])
    symbol, _ = machine.merges.bytes(merge, [(symbol_of(machine, part), 0) for part in found])
    return "s", symbol


def symbol_of(machine: Machine, part: Number_) -> int:
    """Return a symbol that represents a number."""
    return cast(int, part[1]) if part[0] == "s" else machine.symbols.number((OTHER, "literal", *part))
