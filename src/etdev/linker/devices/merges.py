"""Merges of branches: the results of all sides share bytes, so that they are one item on each device too."""

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
    """Assign the same bytes to tensors that moves merge into one value, if delegates on devices access them.

    This applies to static tensors of one form whose contents are never needed at the same time.
    """
    plan, memory, devices = method.plan, method.memory, delegate_devices(method.plan)
    if not devices:
        return Changed(method)
    effects = memory.reaching.effects
    touched = {value for position in devices for value in (*effects[position].reads, *effects[position].writes)}
    webs = [web for web in _webs(plan, memory) if touched & web.keys()]
    values = list(plan.values)
    clashing = _clashing(webs, memory.reaching.flow, effects, tensors(plan, plan.outputs)) if webs else set()
    for number, web in enumerate(webs):
        if number not in clashing:
            place = next(tensor.allocation_info for _, tensor in sorted(web.items(), key=lambda item: item[0]))
            for value, tensor in web.items():
                values[value] = replace(tensor, allocation_info=place)
    return Changed(replace(method, plan=replace(plan, values=tuple(values))))


def _webs(plan: m.ExecutionPlan, memory: MethodMemory) -> Iterable[dict[int, m.Tensor]]:
    """Yield groups of tensors that move instructions connect, all of one shape and type and with separate memory."""
    parent: dict[int, int] = {}

    def root(value: int) -> int:
        while parent.setdefault(value, value) != value:
            value = parent[value]
        return value

    for found in memory.reaching.effects:
        if found.move and all(isinstance(plan.values[value], m.Tensor) for value in found.move):
            one, other = sorted(map(root, found.move))
            parent[other] = one
    webs: dict[int, dict[int, m.Tensor]] = defaultdict(dict)
    for value in parent:
        tensor = plan.values[value]
        assert isinstance(tensor, m.Tensor)
        webs[root(value)][value] = tensor
    # A view reads the bytes of another value under another name.
    viewed = {value for found in memory.reaching.effects for value in found.view or ()}
    for web in webs.values():
        forms = {(tensor.scalar_type, tensor.sizes, tensor.dim_order) for tensor in web.values()}
        if (
            len(forms) == 1
            and not viewed & web.keys()
            and all(_is_alone(plan, memory, value, tensor) for value, tensor in web.items())
        ):
            yield web


def _is_alone(plan: m.ExecutionPlan, memory: MethodMemory, value: int, tensor: m.Tensor) -> bool:
    number = memory.of.get(value)
    if number is None or value in plan.inputs or tensor.shape_dynamism is not m.TensorShapeDynamism.STATIC:
        return False
    storage = memory.storages[number]
    return not storage.persistent and storage.values == (value,)


def _clashing(
    webs: Sequence[Collection[int]], flow: FlowGraph, effects: Sequence[Effects], outputs: Iterable[int]
) -> set[int]:
    """Return the webs in which one value's content is needed while another one is set, or when the method begins.

    A value is needed where it is read, under its own name, before it is set again. Here values are bits of integers.
    """
    members = [(value, number) for number, web in enumerate(webs) for value in web]
    bits = {value: 1 << index for index, (value, _) in enumerate(members)}
    web_of = [number for _, number in members]
    masks = [sum(bits[value] for value in web) for web in webs]

    def of(values: Iterable[int]) -> int:
        return sum(bits[value] for value in set(values) if value in bits)

    read = [of((*found.reads, *found.updates, *found.fills, *(found.move or ())[:1])) for found in effects]
    written = [of((*found.writes, *found.updates, *found.fills)) for found in effects]
    moved = [of((found.move or ())[1:]) for found in effects]
    targets = of(found.move[1] for found in effects if found.move)
    done = [one | other for one, other in zip(written, moved, strict=True)]
    at_entry, behind = _needed_behind(flow, read, done, of(outputs))
    clashes = {web_of[index] for index in _bits(at_entry)}
    for position, (here, to) in enumerate(zip(written, moved, strict=True)):
        for index in _bits(here):
            others = masks[web_of[index]] & ~(1 << index)
            if others & (behind[position] | read[position] | here) or targets >> index & 1:
                clashes.add(web_of[index])
        for index in _bits(to):
            if masks[web_of[index]] & behind[position] & ~(1 << index):
                clashes.add(web_of[index])
    return clashes


def _needed_behind(flow: FlowGraph, read: Sequence[int], done: Sequence[int], at_exit: int) -> tuple[int, list[int]]:
    """Return the values needed when the method begins, and after each instruction."""
    behind = [0] * len(read)
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
                behind[position] = needed
                needed = read[position] | (needed & ~done[position])
            changed |= heads[number] != needed
            heads[number] = needed
    return heads[order[0]] if order else at_exit, behind


def _bits(facts: int) -> Iterator[int]:
    while facts:
        lowest = facts & -facts
        yield lowest.bit_length() - 1
        facts ^= lowest
