"""What is one thing to the transfers between devices: values that hold the same wherever they are copied to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from etdev.program import model as m
from etdev.program.reaching import Place
from etdev.program.storage import MethodMemory
from etdev.program.used import used_values


@dataclass(frozen=True, slots=True)
class Items:
    """The tensors of a method, sorted by what they stand for.

    Static tensors in the same bytes are one item, and so are constants with the same data; any other tensor is one by
    itself.
    """

    of: Mapping[int, int]
    """Value → number of its item."""
    names: tuple[tuple[int, ...], ...]
    """Values of each item, in order."""
    fixed: frozenset[int]
    """Items whose content is on the host at all times, and copied for each call of a delegate: they share some of
    their bytes with others, or which tensor they are is known at run time only."""

    def name(self, item: int) -> int:
        """The value that stands for an item."""
        return self.names[item][0]


def sort_items(plan: m.ExecutionPlan, memory: MethodMemory) -> Items:
    """Find the items of a method."""
    places = memory.reaching.places
    targets = _targets(memory)
    members: dict[Hashable, list[int]] = defaultdict(list)
    for value in sorted({*used_values(plan), *memory.of}):
        tensor = plan.values[value]
        if isinstance(tensor, m.Tensor):
            members[_key(value, tensor, places, targets)].append(value)
    # A value that is one of others by reference stands behind those that have a place.
    names = [tuple(sorted(values, key=lambda value: (value not in places, value))) for values in members.values()]
    of = {value: number for number, values in enumerate(names) for value in values}
    fixed = {of[write.place] for write in memory.reaching.writes if not write.certain}
    for found in memory.reaching.effects:
        if found.view:
            fixed |= {of[value] for value in found.view}
        if found.move and of[found.move[0]] != of[found.move[1]]:
            fixed |= {of[value] for value in found.move}
    for value, others in targets.items():
        if len({places[target] for target in others}) > 1:
            fixed |= {of[value], *(of[target] for target in others)}
    fixed.update(_overlapping(places, of))
    return Items(of, tuple(names), frozenset(fixed))


def _targets(memory: MethodMemory) -> dict[int, set[int]]:
    """The values in whose places those lie that a move or a view sets."""
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


def _overlapping(places: Mapping[int, Place], of: Mapping[int, int]) -> Iterable[int]:
    """Items that share bytes with others."""
    found: set[int] = set()
    furthest: tuple[Place, int] | None = None
    for value in sorted(places, key=lambda value: (places[value].buffer, places[value].start, of[value])):
        place, item = places[value], of[value]
        if furthest is not None:
            before, other = furthest
            if before.buffer == place.buffer and place.start < before.end:
                if item != other:
                    found |= {item, other}
                if place.end <= before.end:
                    continue
        furthest = place, item
    return found
