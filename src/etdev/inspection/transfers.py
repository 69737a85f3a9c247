"""List of the copies between the host and devices, and the number of bytes that one call of a method copies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from etdev.program import model as m
from etdev.program.analysis.flow import FlowGraph, flow_graph
from etdev.program.devices import H2D_COPY, is_device_copy
from etdev.program.info import Transfers


@dataclass(frozen=True, slots=True)
class Transfer:
    """An instruction that copies between the host and a device."""

    instruction: int
    """Position of the instruction."""
    to_device: bool
    """True for a copy from the host to the device, False for one from the device to the host."""
    device: str
    value: int
    """Value index of the tensor that the copy writes."""
    nbytes: int
    """Number of bytes copied, at the tensor's largest size."""


def transfers(plan: m.ExecutionPlan) -> Iterator[Transfer]:
    """Yield the copies between the host and devices, in order of position."""
    for position, call in enumerate(plan.instructions):
        if not isinstance(call, m.KernelCall) or len(call.args) < 2:
            continue
        operator = plan.operators[call.op_index]
        source, out = plan.values[call.args[0]], plan.values[call.args[-1]]
        if is_device_copy(operator) and isinstance(source, m.Tensor) and isinstance(out, m.Tensor):
            to_device = operator.name == H2D_COPY
            device = str((out if to_device else source).device)
            yield Transfer(position, to_device, device, call.args[-1], out.nbytes)


def transfers_per_call(plan: m.ExecutionPlan) -> Transfers:
    """Return the number of bytes that a call of a method copies in each direction.

    The number depends on the path through the method. The result is for the path that copies the most bytes.
    """
    found = tuple(transfers(plan))
    if not found:
        return Transfers(0, 0)
    flow = flow_graph(plan)
    cycles = flow.cycles()
    weights: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for item in found:
        there, back = weights[cycles[item.instruction]]
        more = (item.nbytes, 0) if item.to_device else (0, item.nbytes)
        weights[cycles[item.instruction]] = there + more[0], back + more[1]
    most = _heaviest_path(flow, cycles, weights)
    repeating = _repeating(flow, cycles)
    return Transfers(*most, loops=any(cycles[item.instruction] in repeating for item in found))


def _heaviest_path(flow: FlowGraph, cycles: tuple[int, ...], weights: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the numbers of bytes copied to devices and back, on the path that copies the most bytes.

    ``cycles`` contains the group number of each instruction: all instructions of a loop are in one group. ``weights``
    maps each group to the bytes that it copies to devices and back.
    """
    group = {number: cycles[block.start] for number, block in enumerate(flow.blocks) if block.start < block.end}
    following: dict[int, set[int]] = defaultdict(set)
    waiting: Counter[int] = Counter()
    reached = [number for number in flow.order() if number in group]
    for number in reached:
        for successor in flow.blocks[number].successors:
            to = group.get(successor)
            if to is not None and to != group[number] and to not in following[group[number]]:
                following[group[number]].add(to)
                waiting[to] += 1
    best = {number: weights[number] for number in {group[number] for number in reached}}
    ready = [number for number in best if not waiting[number]]
    while ready:
        number = ready.pop()
        for to in following[number]:
            through = best[number][0] + weights[to][0], best[number][1] + weights[to][1]
            best[to] = max(best[to], through, key=sum)
            waiting[to] -= 1
            if not waiting[to]:
                ready.append(to)
    return max(best.values(), key=sum, default=(0, 0))


def _repeating(flow: FlowGraph, cycles: tuple[int, ...]) -> set[int]:
    """Return the numbers of the groups that are loops.

    A group is either all blocks of one loop, or one block outside of loops.
    """
    groups = {number: cycles[block.start] for number, block in enumerate(flow.blocks) if block.start < block.end}
    several = {group for group, count in Counter(groups.values()).items() if count > 1}
    return several | {group for number, group in groups.items() if number in flow.blocks[number].successors}
