"""Groups of tensors connected by moves, such as the results of two branches.

The pass assigns the same bytes to all tensors of a group. So each device needs only one tensor for the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import Effects, tensors
from etdev.program.analysis.flow import FlowGraph
from etdev.program.analysis.storage import MethodMemory
from etdev.program.delegates import delegate_devices


def join_merged(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Assign the same bytes to tensors connected by moves, if a delegate on a device accesses one of these tensors.

    The tensors must be static and have the same shape and type. The contents of two of them must never be needed at the
    same time.
    """
    plan, memory, devices = method.plan, method.memory, delegate_devices(method.plan)
    if not devices:
        return Changed(method)
    effects = memory.reaching.effects
    touched = {value for position in devices for value in (*effects[position].reads, *effects[position].writes)}
    groups = [group for group in _move_groups(plan, memory) if touched & group.keys()]
    values = list(plan.values)
    conflicting = _conflicting(groups, memory.reaching.flow, effects, tensors(plan, plan.outputs)) if groups else set()
    for number, group in enumerate(groups):
        if number not in conflicting:
            place = next(tensor.allocation_info for _, tensor in sorted(group.items(), key=lambda item: item[0]))
            for value, tensor in group.items():
                values[value] = replace(tensor, allocation_info=place)
    return Changed(replace(method, plan=replace(plan, values=tuple(values))))


def _move_groups(plan: m.ExecutionPlan, memory: MethodMemory) -> Iterable[dict[int, m.Tensor]]:
    """Yield groups of tensors connected by moves. Each group maps value indices to tensors.

    The tensors of a group have the same shape and type, and no other value shares their memory.
    """
    parent: dict[int, int] = {}

    def root(value: int) -> int:
        while parent.setdefault(value, value) != value:
            value = parent[value]
        return value

    for found in memory.reaching.effects:
        if found.move and all(isinstance(plan.values[value], m.Tensor) for value in found.move):
            one, other = sorted(map(root, found.move))
            parent[other] = one
    groups: dict[int, dict[int, m.Tensor]] = defaultdict(dict)
    for value in parent:
        tensor = plan.values[value]
        assert isinstance(tensor, m.Tensor)
        groups[root(value)][value] = tensor
    # The memory of a tensor with a view is in use under another name, too. So leave out such tensors.
    viewed = {value for found in memory.reaching.effects for value in found.view or ()}
    for group in groups.values():
        forms = {(tensor.scalar_type, tensor.sizes, tensor.dim_order) for tensor in group.values()}
        if (
            len(forms) == 1
            and not viewed & group.keys()
            and all(_is_alone(plan, memory, value, tensor) for value, tensor in group.items())
        ):
            yield group


def _is_alone(plan: m.ExecutionPlan, memory: MethodMemory, value: int, tensor: m.Tensor) -> bool:
    number = memory.of.get(value)
    if number is None or value in plan.inputs or not tensor.is_static:
        return False
    storage = memory.storages[number]
    return not storage.persistent and storage.values == (value,)


def _conflicting(
    groups: Sequence[Collection[int]], flow: FlowGraph, effects: Sequence[Effects], outputs: Iterable[int]
) -> set[int]:
    """Return the indices of the groups whose tensors must keep separate memory.

    Tensors need separate memory if an instruction writes one of them while another one is still needed. They also need
    it if one of them is needed when the method begins. After a write, a value is needed until the last read before
    the next write. Sets of values are integers here, with one bit for each value.
    """
    members = [(value, number) for number, group in enumerate(groups) for value in group]
    bits = {value: 1 << index for index, (value, _) in enumerate(members)}
    group_of = [number for _, number in members]
    masks = [sum(bits[value] for value in group) for group in groups]

    def mask_of(values: Iterable[int]) -> int:
        return sum(bits[value] for value in set(values) if value in bits)

    read = [mask_of((*found.reads, *found.updates, *found.fills, *(found.move or ())[:1])) for found in effects]
    written = [mask_of((*found.writes, *found.updates, *found.fills)) for found in effects]
    moved = [mask_of((found.move or ())[1:]) for found in effects]
    targets = mask_of(found.move[1] for found in effects if found.move)
    done = [one | other for one, other in zip(written, moved, strict=True)]
    at_entry, after = _needed_after(flow, read, done, mask_of(outputs))
    conflicting = {group_of[index] for index in _bits(at_entry)}
    for position, (here, to) in enumerate(zip(written, moved, strict=True)):
        for index in _bits(here):
            others = masks[group_of[index]] & ~(1 << index)
            if others & (after[position] | read[position] | here) or targets >> index & 1:
                conflicting.add(group_of[index])
        for index in _bits(to):
            if masks[group_of[index]] & after[position] & ~(1 << index):
                conflicting.add(group_of[index])
    return conflicting


def _needed_after(flow: FlowGraph, read: Sequence[int], done: Sequence[int], at_exit: int) -> tuple[int, list[int]]:
    """Return the values needed when the method begins, and the values needed after each instruction.

    ``read`` has the values that each instruction reads, and ``done`` has the values that it writes. ``at_exit`` has the
    values needed at the end of the method. Sets of values are integers, with one bit for each value.
    """
    after = [0] * len(read)
    heads: dict[int, int] = defaultdict(int)
    heads[flow.exit] = at_exit
    order = flow.order()
    changed = True
    while changed:
        changed = False
        for number in reversed(order):
            block = flow.blocks[number]
            needed = 0
            for successor in block.successors:
                needed |= heads[successor]
            for position in reversed(range(block.start, block.end)):
                after[position] = needed
                needed = read[position] | (needed & ~done[position])
            changed |= heads[number] != needed
            heads[number] = needed
    return heads[order[0]] if order else at_exit, after


def _bits(facts: int) -> Iterator[int]:
    while facts:
        lowest = facts & -facts
        yield lowest.bit_length() - 1
        facts ^= lowest
