"""Items: groups of values that always have the same content. A copy between devices transfers a whole item."""

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

    Static tensors at the same address form one item. Constants with the same data also form one item. Every other
    tensor is an item of its own. An item in ``fixed`` contains exactly one tensor.
    """

    of: Mapping[int, int]
    """Maps each value to the number of its item."""
    values: tuple[tuple[int, ...], ...]
    """Values of each item, by item number. The first value represents the item."""
    fixed: Mapping[int, frozenset[int]]
    """Maps an item to all items that may change together with it, the item included.

    Items change together if they share bytes, or if a value of one item may refer to the other item at run time. The
    host always holds the content of these items.
    """

    def representative(self, item: int) -> int:
        """Return the value that represents an item."""
        return self.values[item][0]

    def changing_with(self, item: int) -> frozenset[int]:
        """Return the items whose content may change when an instruction writes to ``item``."""
        return self.fixed.get(item, frozenset({item}))

    def with_fixed(self, item: int) -> Items:
        """Return new items, in which the host always holds the content of ``item``.

        Each value of ``item`` becomes an item of its own.
        """
        pairs = [
            (self.representative(one), self.representative(other))
            for other, group in self.fixed.items()
            for one in group
        ]
        pairs += [(value, self.representative(item)) for value in self.values[item]]
        return _with_changing_together(self.values, pairs)


def find_items(plan: m.ExecutionPlan, memory: MethodMemory) -> Items:
    """Find the items of a method: its groups of values with the same content."""
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
        """Return a sort key. Values that are never freed come first, and values that a move or view sets come last."""
        return value in targets, -max(freed.get(value, [len(instructions)])), value not in places, value

    groups = tuple(tuple(sorted(values, key=rank)) for values in members.values())
    of = {value: number for number, values in enumerate(groups) for value in values}
    pairs = []
    for one, other in _linked_pairs(memory, targets):
        if one == other or of[one] != of[other]:
            pairs.append((one, other))
    return _with_changing_together(groups, [*pairs, *_overlapping(places, of)])


def _with_changing_together(groups: Sequence[tuple[int, ...]], pairs: Iterable[tuple[int, int]]) -> Items:
    """Return the items for these groups of values.

    A group without a value in ``pairs`` becomes one item. In any other group, each value becomes an item of its own,
    whose content stays on the host. ``pairs`` connects values that change together. Their items then change together.
    """
    group = _representatives(groups, pairs)
    split = [each for values in groups for each in ([(value,) for value in values] if values[0] in group else [values])]
    of = {value: number for number, values in enumerate(split) for value in values}
    changing = {root: frozenset(of[value] for value in values) for root, values in _by_root(group).items()}
    return Items(of, tuple(split), {of[value]: changing[root] for value, root in group.items()})


def _representatives(groups: Sequence[tuple[int, ...]], pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Map values to representatives. Values that change together have the same representative.

    ``pairs`` contains values that change together. If a value of a group is in a pair, all values of the group change
    together. Values that change alone are not in the map.
    """
    parent: dict[int, int] = {}

    def root(value: int) -> int:
        parent.setdefault(value, value)
        while parent[value] != value:
            parent[value] = parent[parent[value]]
            value = parent[value]
        return value

    for one, other in pairs:
        parent[root(one)] = root(other)
    # All values of an item change together.
    for values in groups:
        if any(value in parent for value in values):
            for value in values:
                parent[root(value)] = root(values[0])
    return {value: root(value) for value in list(parent)}


def _by_root(group: Mapping[int, int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for value, root in group.items():
        found[root].append(value)
    return found


def _linked_pairs(memory: MethodMemory, targets: Mapping[int, set[int]]) -> Iterator[tuple[int, int]]:
    """Yield pairs of values. At run time, one value of a pair may refer to the other, so a write may change both."""
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
    """For each value that is set by a move or a view, return the values whose memory that value may use."""
    found: dict[int, set[int]] = {value: set() for value in memory.reaching.references}
    for use in memory.reaching.uses:
        if use.value in found:
            found[use.value].add(use.place)
    return found


def _key(value: int, tensor: m.Tensor, places: Mapping[int, Place], targets: Mapping[int, set[int]]) -> Hashable:
    if tensor.is_constant and not tensor.is_external:
        return "constant", tensor.data_buffer_idx, tensor.nbytes
    if not tensor.is_static:
        return value
    found = {places[target] for target in targets.get(value, ())}
    if len(found) == 1:
        return found.pop()
    return places.get(value, value) if value not in targets else value


def _overlapping(places: Mapping[int, Place], of: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of values that belong to different items and share bytes."""
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
