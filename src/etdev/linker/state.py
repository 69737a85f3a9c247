"""State of a program, shared between methods or private to one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from etdev.errors import LinkError
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory, Storage


@dataclass(frozen=True, slots=True)
class State:
    """A piece of state. It has the same address in every method that uses it."""

    members: tuple[tuple[int, int, int], ...]
    """Members of this state, each as ``(method index, value index, offset in bytes from the start)``."""
    size: int
    """Size in bytes."""
    name: str
    shared: bool
    """True if more than one method uses this state."""


def state_name(plan: m.ExecutionPlan, values: Iterable[int]) -> str | None:
    """Return the name of the module buffer that these values represent, or None if the file does not state a name."""
    for value in values:
        tensor = plan.values[value]
        if isinstance(tensor, m.Tensor) and tensor.name is not None:
            return tensor.name
    return None


def state_by_name(
    plans: Sequence[m.ExecutionPlan],
    memories: Sequence[MethodMemory],
    names: Sequence[Mapping[int, str]],
    *,
    share: bool,
) -> tuple[State, ...]:
    """Return the state of an object program. If ``share`` is set, merge state of the same name in several methods.

    ``names`` maps, for each method, values to the names of state. Raises :class:`~etdev.errors.LinkError` if the
    methods disagree about the size of shared state.
    """
    groups: dict[tuple[str, int], list[tuple[int, Storage]]] = defaultdict(list)
    for index, memory in enumerate(memories):
        for number, storage in enumerate(memory.storages):
            if storage.persistent:
                name = next((names[index][value] for value in storage.values if value in names[index]), None)
                key = (name, -1) if share and name else (name or f"value {storage.values[0]}", index * 10**9 + number)
                groups[key].append((index, storage))
    for (name, _), members in groups.items():
        sizes = {plans[index].name: storage.size for index, storage in members}
        if len(set(sizes.values())) > 1:
            found = ", ".join(f"{size} bytes in {method!r}" for method, size in sizes.items())
            raise LinkError(
                f"the methods cannot share the state {name!r}: it has {found}",
                hint="give the buffer the same shape in every method, or turn model.share_state off",
            )
    return tuple(_state(memories, members, name, by_address=False) for (name, _), members in groups.items())


def state_by_address(plans: Sequence[m.ExecutionPlan], memories: Sequence[MethodMemory]) -> tuple[State, ...]:
    """Return the state of a program that another toolchain planned.

    ExecuTorch places state that methods share in buffer 2, at the same address in each method. So overlapping state in
    buffers 2 and above is merged. State in buffer 1, which contains the temporaries of every method, is private.
    """
    groups: list[list[tuple[int, Storage]]] = []
    in_state_buffers: dict[int, list[tuple[int, Storage]]] = defaultdict(list)
    for index, memory in enumerate(memories):
        for storage in memory.storages:
            if storage.persistent and storage.memory_id > 1:
                in_state_buffers[storage.memory_id].append((index, storage))
            elif storage.persistent:
                groups.append([(index, storage)])
    for _, found in sorted(in_state_buffers.items()):
        found.sort(key=lambda item: (item[1].offset, item[0]))
        end = -1
        for index, storage in found:
            if storage.offset >= end:
                groups.append([])
            groups[-1].append((index, storage))
            end = max(end, storage.offset + storage.size)
    named = []
    for number, members in enumerate(groups):
        names = (state_name(plans[method], storage.values) for method, storage in members)
        name = next(filter(None, names), f"state {number}")
        named.append(_state(memories, members, name, by_address=True))
    return tuple(named)


def kept_by_others(memories: Sequence[MethodMemory]) -> list[set[int]]:
    """Return, for each method, the tensors that are not state but overlap another method's state.

    Only buffers 2 and above count, because buffer 1 contains the temporaries of every method.
    """
    kept: list[set[int]] = [set() for _ in memories]
    for index, memory in enumerate(memories):
        others = [
            item
            for number, other in enumerate(memories)
            if number != index
            for item in other.storages
            if item.persistent and item.memory_id > 1
        ]
        for storage in memory.storages if others else ():
            if not storage.persistent and any(_overlap(storage, other) for other in others):
                kept[index].update(storage.values)
    return kept


def _overlap(one: Storage, other: Storage) -> bool:
    together = one.offset < other.offset + other.size and other.offset < one.offset + one.size
    return one.memory_id == other.memory_id and together


def _state(
    memories: Sequence[MethodMemory], members: Sequence[tuple[int, Storage]], name: str, *, by_address: bool
) -> State:
    """Combine storages of one or several methods into one piece of state.

    ``members`` has each storage with the index of its method. If ``by_address`` is set, the storages keep the distances
    between their addresses. Otherwise, all of them begin at offset 0 of the state.
    """
    lowest = min(storage.offset for _, storage in members)
    placed, size = [], 0
    for index, storage in members:
        base = lowest if by_address else storage.offset
        places = memories[index].reaching.places
        placed += [(index, value, places[value].start - base) for value in storage.values]
        size = max(size, storage.offset - base + storage.size)
    return State(tuple(placed), size, name, len({index for index, _ in members}) > 1)
