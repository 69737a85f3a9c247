"""Items: groups of values with the same content, which transfers between devices treat as one thing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from etdev.linker.edit import frees
from etdev.program import model as m
from etdev.program.analysis.reaching import Place
from etdev.program.analysis.storage import MethodMemory
from etdev.program.used import used_values


@dataclass(frozen=True, slots=True)
class Items:
    """The tensors of a method, grouped by content.

    Static tensors in the same bytes are one item, and so are constants with the same data. Every other tensor is an
    item by itself. So is each tensor that is ``fixed`` to the host.
    """

    of: Mapping[int, int]
    """Value → number of its item."""
    names: tuple[tuple[int, ...], ...]
    """Values of each item; the first one represents it."""
    fixed: Mapping[int, frozenset[int]]
    """Items whose content is always on the host → items that may change with them.

    They share some of their bytes, or their tensor is known at run time only.
    """

    def name(self, item: int) -> int:
        """Return the value that represents an item."""
        return self.names[item][0]

    def changing(self, item: int) -> frozenset[int]:
        """Return the items that may change when one is written."""
        return self.fixed.get(item, frozenset({item}))

    def with_fixed(self, item: int) -> Items:
        """Return the items with one more item fixed to the host."""
        bonds = [(value, self.name(other)) for other, group in self.fixed.items() for value in map(self.name, group)]
        bonds += [(value, self.name(item)) for value in self.names[item]]
        return _sorted(self.names, bonds)


def sort_items(plan: m.ExecutionPlan, memory: MethodMemory) -> Items:
    """Find the items of a method."""
    places = memory.reaching.places
    targets = _targets(memory)
    members: dict[Hashable, list[int]] = defaultdict(list)
    for value in sorted({*used_values(plan), *memory.of}):
        tensor = plan.values[value]
        if isinstance(tensor, m.Tensor):
            members[_key(value, tensor, places, targets)].append(value)

    instructions = memory.reaching.flow.instructions
    freed = frees(instructions)

    def rank(value: int) -> tuple[bool, int, bool, int]:
        """Rank values that refer to others, and values that are freed, after values that can be read to the end."""
        return value in targets, -max(freed.get(value, [len(instructions)])), value not in places, value

    names = tuple(tuple(sorted(values, key=rank)) for values in members.values())
    of = {value: number for number, values in enumerate(names) for value in values}
    bonds = []
    for one, other in _bonds(memory, targets):
        if one == other or of[one] != of[other]:
            bonds.append((one, other))
    return _sorted(names, [*bonds, *_overlapping(places, of)])


def _sorted(names: Sequence[tuple[int, ...]], bonds: Iterable[tuple[int, int]]) -> Items:
    """Return the items with these names. Values that a bond connects change together."""
    group = _together(names, bonds)
    apart = [each for values in names for each in ([(value,) for value in values] if values[0] in group else [values])]
    of = {value: number for number, values in enumerate(apart) for value in values}
    changing = {root: frozenset(of[value] for value in values) for root, values in _by_root(group).items()}
    return Items(of, tuple(apart), {of[value]: changing[root] for value, root in group.items()})


def _together(names: Sequence[tuple[int, ...]], bonds: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the values that a bond reaches, each with a representative of all that change together."""
    parent: dict[int, int] = {}

    def root(value: int) -> int:
        parent.setdefault(value, value)
        while parent[value] != value:
            parent[value] = parent[parent[value]]
            value = parent[value]
        return value

    for one, other in bonds:
        parent[root(one)] = root(other)
    # All names of an item change together.
    for values in names:
        if any(value in parent for value in values):
            for value in values:
                parent[root(value)] = root(values[0])
    return {value: root(value) for value in list(parent)}


def _by_root(group: Mapping[int, int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for value, root in group.items():
        found[root].append(value)
    return found


def _bonds(memory: MethodMemory, targets: Mapping[int, set[int]]) -> Iterator[tuple[int, int]]:
    """Yield pairs of values of which one may refer to the other."""
    places = memory.reaching.places
    for write in memory.reaching.writes:
        if (
            not write.certain
            and len({places[other] for found in targets.values() if write.place in found for other in found}) > 1
        ):
            yield write.place, write.place
    for found in memory.reaching.effects:
        if found.view:
            yield found.view
        if found.move:
            yield found.move
    for value, others in targets.items():
        if len({places[target] for target in others}) > 1:
            yield from ((value, target) for target in others)


def _targets(memory: MethodMemory) -> dict[int, set[int]]:
    """Return, for each value that a move or a view sets, the values in whose places it may be."""
    found: dict[int, set[int]] = {value: set() for value in memory.reaching.references}
    for use in memory.reaching.uses:
        if use.value in found:
            found[use.value].add(use.place)
    return found


def _key(value: int, tensor: m.Tensor, places: Mapping[int, Place], targets: Mapping[int, set[int]]) -> Hashable:
    if tensor.is_constant and not tensor.is_external:
        return "constant", tensor.data_buffer_idx, tensor.nbytes
    if tensor.shape_dynamism is not m.TensorShapeDynamism.STATIC:
        return value
    found = {places[target] for target in targets.get(value, ())}
    if len(found) == 1:
        return found.pop()
    return places.get(value, value) if value not in targets else value


def _overlapping(places: Mapping[int, Place], of: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield values of different items that share bytes."""
    furthest: int | None = None
    for value in sorted(places, key=lambda value: (places[value].buffer, places[value].start, of[value])):
        place = places[value]
        if furthest is not None:
            before = places[furthest]
            if before.buffer == place.buffer and place.start < before.end:
                if of[value] != of[furthest]:
                    yield furthest, value
                if place.end <= before.end:
                    continue
        furthest = value
