"""Bytes that a call of a method copies between the host and devices."""

from __future__ import annotations

from collections import Counter, defaultdict

from etdev.pipeline.results.result_parts import Copies
from etdev.program import model as m
from etdev.program.analysis.flow import FlowGraph, flow_graph
from etdev.program.devices import D2H_COPY, H2D_COPY


def copies_per_call(plan: m.ExecutionPlan) -> Copies:
    """Return the largest number of bytes that a call of the method copies."""
    moved = _moved(plan)
    if not any(moved.values()):
        return Copies(0, 0)
    flow = flow_graph(plan)
    cycles = flow.cycles()
    weights: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for position, (there, back) in moved.items():
        before = weights[cycles[position]]
        weights[cycles[position]] = before[0] + there, before[1] + back
    most = _heaviest_path(flow, cycles, weights)
    repeating = _repeating(flow, cycles)
    return Copies(*most, loops=any(cycles[position] in repeating for position in moved))


def _moved(plan: m.ExecutionPlan) -> dict[int, tuple[int, int]]:
    """Return the bytes that each copy moves to a device and back, by position."""
    found = {}
    position = -1
    for chain in plan.chains:
        for call in chain.instructions:
            position += 1
            name = plan.operators[call.op_index].name if isinstance(call, m.KernelCall) else ""
            if isinstance(call, m.KernelCall) and name in (H2D_COPY, D2H_COPY) and call.args:
                tensor = plan.values[call.args[-1]]
                size = tensor.nbytes if isinstance(tensor, m.Tensor) else 0
                found[position] = (size, 0) if name == H2D_COPY else (0, size)
    return found


def _heaviest_path(flow: FlowGraph, cycles: tuple[int, ...], weights: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the largest number of bytes copied from the start to any block; blocks of one loop count as one."""
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
    """Return the numbers of the groups that are loops."""
    groups = {number: cycles[block.start] for number, block in enumerate(flow.blocks) if block.start < block.end}
    several = {group for group, count in Counter(groups.values()).items() if count > 1}
    return several | {group for number, group in groups.items() if number in flow.blocks[number].successors}
