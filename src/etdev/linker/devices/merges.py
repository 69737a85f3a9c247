"""What the sides of a branch compute, laid where the value is that it becomes, to be one thing on each device too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from etdev.devices import Device
from etdev.program import model as m
from etdev.program.effects import Effects, tensors
from etdev.program.flow import FlowGraph
from etdev.program.storage import MethodMemory


def join_merged(plan: m.ExecutionPlan, memory: MethodMemory, devices: Mapping[int, Device]) -> m.ExecutionPlan:
    """Give tensors that moves make one value the same bytes, where delegates on devices have to do with them.

    That is so for static tensors of one form whose contents are never needed at the same time.
    """
    effects = memory.reaching.effects
    touched = {value for position in devices for value in (*effects[position].reads, *effects[position].writes)}
    values = list(plan.values)
    live = _Live(memory.reaching.flow, effects, tensors(plan, plan.outputs))
    for web in _webs(plan, memory):
        if touched & web.keys() and not live.clash(web):
            place = next(tensor.allocation_info for value, tensor in sorted(web.items()))
            for value, tensor in web.items():
                values[value] = replace(tensor, allocation_info=place)
    return replace(plan, values=tuple(values))


def _webs(plan: m.ExecutionPlan, memory: MethodMemory) -> Iterable[dict[int, m.Tensor]]:
    """Tensors that moves lead to each other, if each has bytes of its own and all are of one form."""
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
    for web in webs.values():
        forms = {(tensor.scalar_type, tensor.sizes, tensor.dim_order) for tensor in web.values()}
        if len(forms) == 1 and all(_is_alone(plan, memory, value, tensor) for value, tensor in web.items()):
            yield web


def _is_alone(plan: m.ExecutionPlan, memory: MethodMemory, value: int, tensor: m.Tensor) -> bool:
    number = memory.of.get(value)
    if number is None or value in plan.inputs or tensor.shape_dynamism is not m.TensorShapeDynamism.STATIC:
        return False
    storage = memory.storages[number]
    return not storage.persistent and storage.values == (value,)


@dataclass(slots=True)
class _Live:
    """Which values are read, as that value, before they are set again; values are bits of integers."""

    flow: FlowGraph
    effects: Sequence[Effects]
    outputs: Collection[int]

    def clash(self, web: Collection[int]) -> bool:
        """Is the content of one of these values needed while another one is set, or when the method begins?"""
        bits = {value: 1 << number for number, value in enumerate(web)}
        targets = {found.move[1] for found in self.effects if found.move}

        def of(values: Iterable[int]) -> int:
            return sum(bits[value] for value in set(values) if value in bits)

        read = [of((*found.reads, *found.updates, *found.fills, *(found.move or ())[:1])) for found in self.effects]
        done = [of((*found.writes, *found.updates, *found.fills)) for found in self.effects]
        if any(written & of(targets) for written in done):
            return True
        moved = [of((found.move or ())[1:]) for found in self.effects]
        behind = self._behind(read, [one | other for one, other in zip(done, moved, strict=True)], of(self.outputs))
        if behind[-1]:
            return True
        for position, written in enumerate(done):
            others = behind[position] | read[position]
            if written.bit_count() > 1 or (written and others & ~written):
                return True
            if moved[position] and behind[position] & ~moved[position]:
                return True
        return False

    def _behind(self, read: Sequence[int], done: Sequence[int], at_exit: int) -> list[int]:
        """What is live behind each instruction; the last entry is what is live when the method begins."""
        behind = [0] * (len(self.effects) + 1)
        heads: dict[int, int] = defaultdict(int)
        heads[self.flow.exit] = at_exit
        changed = True
        while changed:
            changed = False
            for number in reversed(self.flow.order()):
                block = self.flow.blocks[number]
                live = 0
                for successor in block.successors:
                    live |= heads[successor]
                for position in reversed(range(block.start, block.end)):
                    behind[position] = live
                    live = read[position] | (live & ~done[position])
                changed |= heads[number] != live
                heads[number] = live
        first = self.flow.order()[:1]
        behind[-1] = heads[first[0]] if first else 0
        return behind
