"""Data flow between a method's instructions, in the form that the graph on the page shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from etdev.program import model as m
from etdev.program.analysis.effects import OUT_NAMESPACES, Effects, effects, outputs, tensors
from etdev.program.analysis.flow import FlowGraph, flow_graph
from etdev.program.analysis.storage import MethodMemory
from etdev.program.delegates import delegate_inputs

INPUT, OUTPUT, STATE = "input", "output", "state"

_Writers: TypeAlias = Mapping[int, frozenset[int]]
"""Maps each value index to the nodes that may have written the value."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Values of one instruction, as value indices. Lists of tensors are replaced by their tensors."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    partial: frozenset[int] = frozenset()
    """Values in ``writes`` that keep a part of their earlier content."""


@dataclass(frozen=True, slots=True)
class End:
    """A start or an end of the data flow: an input, an output, or state from an earlier call of any method."""

    kind: str
    value: int
    position: int
    """Position among the method's inputs or outputs; for state, the value index."""


@dataclass(frozen=True, slots=True)
class DataFlow:
    """Data flow of a method.

    A node is the position of an instruction, or the number of instructions plus an index into ``ends``.
    """

    flow: FlowGraph
    operands: tuple[Operands, ...]
    ends: tuple[End, ...]
    edges: tuple[tuple[int, int, int], ...]
    """Edges as ``(writer, reader, value that is read)``, in ascending order."""


def data_flow(program: m.Program, plan: m.ExecutionPlan, memory: MethodMemory | str) -> DataFlow:
    """Return the data flow of a method.

    A value is followed from the instructions that write it to those that read it. A tensor that no instruction writes
    as a whole, such as an alias, gets its content from the writers of its bytes. If ``memory`` is a text, it states why
    the use of planned memory is unknown. In this case, the writers of bytes are also unknown.
    """
    flow = flow_graph(plan)
    found = _effects(program, plan, flow, memory)
    operands = tuple(_operands(plan, call, one) for call, one in zip(flow.instructions, found, strict=True))
    ends = list(_ends(plan, operands, memory))
    count = len(flow.instructions)
    started = {end.value: frozenset({count + row}) for row, end in enumerate(ends) if end.kind != OUTPUT}
    bytes_from = _writers_of_bytes(memory, {end.value: count + row for row, end in enumerate(ends)})
    edges: dict[tuple[int, int, int], None] = {}
    live = _live_after(flow, operands, plan.outputs)
    before = _before_blocks(flow, operands, started, live)
    for block, writers in zip(flow.blocks, before, strict=True):
        now = dict(writers)
        for position in range(block.start, block.end):
            for value in operands[position].reads:
                sources = now.get(value) or bytes_from.get((position, value), ())
                edges.update(((source, position, value), None) for source in sources if source != position)
            _apply(now, position, operands[position])
    at_end = _at_end(flow, operands, before, live)
    for row, end in enumerate(ends):
        if end.kind == OUTPUT:
            sources = at_end.get(end.value) or bytes_from.get((count, end.value), ())
            edges.update(((source, count + row, end.value), None) for source in sources)
    return DataFlow(flow, operands, tuple(ends), tuple(sorted(edges)))


def _effects(
    program: m.Program, plan: m.ExecutionPlan, flow: FlowGraph, memory: MethodMemory | str
) -> Sequence[Effects]:
    if not isinstance(memory, str):
        return memory.reaching.effects
    split = delegate_inputs(program, plan)
    return [effects(plan, call, split.get(position)) for position, call in enumerate(flow.instructions)]


def _operands(plan: m.ExecutionPlan, call: m.Instruction, found: Effects) -> Operands:
    match call:
        case m.MoveCall():
            return Operands((call.move_from,), (call.move_to,))
        case m.JumpFalseCall():
            return Operands((call.cond_value_index,), ())
        case m.FreeCall():
            return Operands((call.value_index,), ())
        case m.KernelCall() | m.DelegateCall():
            given = tuple(_flat(plan, call.args))
    written = dict.fromkeys(_written(plan, call, found))
    only_written = written.keys() - set(found.reads)
    return Operands(
        reads=tuple(dict.fromkeys(value for value in given if value not in only_written)),
        writes=tuple(written),
        partial=frozenset(found.fills),
    )


def _written(plan: m.ExecutionPlan, call: m.KernelCall | m.DelegateCall, found: Effects) -> Iterator[int]:
    """Yield the values that a call writes.

    For an unknown operator, ``found`` contains all arguments, because the operator may change any of them. Tensors that
    occur twice among the arguments are the operator's outputs. If there are such tensors, yield only these tensors.
    """
    view = () if found.view is None else found.view[1:]
    written = (*found.writes, *found.updates, *found.fills, *view)
    if isinstance(call, m.KernelCall):
        namespace = plan.operators[call.op_index].name.partition("::")[0]
        outs = outputs(plan, call.args)
        if outs and namespace not in OUT_NAMESPACES:
            written = outs
        elif not written:
            written = tuple(_flat(plan, call.args[-1:]))  # The last argument is the number that a kernel returns.
    for value in written:
        tensor = plan.values[value]
        if not (isinstance(tensor, m.Tensor) and tensor.is_constant):
            yield value


def _flat(plan: m.ExecutionPlan, args: Sequence[int]) -> Iterator[int]:
    for index in args:
        if isinstance(plan.values[index], m.TensorList | m.OptionalTensorList):
            yield from tensors(plan, (index,))
        else:
            yield index


def _ends(plan: m.ExecutionPlan, operands: Sequence[Operands], memory: MethodMemory | str) -> Iterator[End]:
    for position, value in enumerate(plan.inputs):
        yield End(INPUT, value, position)
    written = set(plan.inputs)
    kept: dict[int, None] = {}
    for one in operands:
        kept.update((value, None) for value in one.reads if value not in written and _is_state(plan, value, memory))
        written.update(one.writes)
    yield from (End(STATE, value, value) for value in kept)
    for position, value in enumerate(plan.outputs):
        yield End(OUTPUT, value, position)


def _is_state(plan: m.ExecutionPlan, value: int, memory: MethodMemory | str) -> bool:
    if not isinstance(memory, str):
        return value in memory.of and memory.storages[memory.of[value]].persistent
    tensor = plan.values[value]
    return isinstance(tensor, m.Tensor) and tensor.has_initial_value


def _writers_of_bytes(memory: MethodMemory | str, ends: Mapping[int, int]) -> dict[tuple[int, int], tuple[int, ...]]:
    """Map each read (the position of an instruction, and a value index) to the nodes that wrote the value's bytes."""
    if isinstance(memory, str):
        return {}
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for use in memory.reaching.uses:
        writes = [memory.reaching.writes[number - 1] for number in sorted(use.writes) if number > 0]
        nodes = [one.position if one.position >= 0 else ends.get(one.place, -1) for one in writes]
        found[use.position, use.value] = tuple(dict.fromkeys(node for node in nodes if node >= 0))
    return found


def _apply(now: dict[int, frozenset[int]], position: int, operands: Operands) -> None:
    """Record the writes of the instruction at ``position`` in ``now``, which maps values to their writers."""
    for value in operands.writes:
        here = frozenset({position})
        now[value] = now.get(value, frozenset()) | here if value in operands.partial else here


def _live_after(flow: FlowGraph, operands: Sequence[Operands], outputs: Sequence[int]) -> list[set[int]]:
    """Return, for each block, the values whose content at the block's end may still be read.

    The writers of all other values need not be tracked.
    """
    read_first: list[set[int]] = []
    written: list[set[int]] = []
    for block in flow.blocks:
        reads: set[int] = set()
        writes: set[int] = set()
        for one in operands[block.start : block.end]:
            reads.update(value for value in (*one.reads, *one.partial) if value not in writes)
            writes.update(one.writes)
        read_first.append(reads)
        written.append(writes)
    predecessors: list[list[int]] = [[] for _ in flow.blocks]
    for number, block in enumerate(flow.blocks):
        for successor in block.successors:
            if successor != flow.exit:
                predecessors[successor].append(number)
    after = [set(outputs) if flow.exit in block.successors else set() for block in flow.blocks]
    waiting = list(range(len(flow.blocks)))
    while waiting:
        block_number = waiting.pop()
        here = read_first[block_number] | (after[block_number] - written[block_number])
        for number in predecessors[block_number]:
            if not here <= after[number]:
                after[number] |= here
                waiting.append(number)
    return after


def _before_blocks(
    flow: FlowGraph, operands: Sequence[Operands], started: _Writers, live: Sequence[set[int]]
) -> list[dict[int, frozenset[int]]]:
    """Return, for the start of each block, the writers of each value that may still be read."""
    before: list[dict[int, frozenset[int]]] = [{} for _ in flow.blocks]
    if not flow.blocks:
        return before
    before[0] = dict(started)
    rank = {block: number for number, block in enumerate(flow.order())}
    # Visit each reachable block at least once, in order. Visit it again only if a path adds writers.
    waiting = [(number, block) for block, number in rank.items()]
    heapify(waiting)
    queued = set(rank)
    while waiting:
        _, block = heappop(waiting)
        queued.remove(block)
        now = _after(flow, operands, before, block, live)
        for successor in flow.blocks[block].successors:
            new = successor != flow.exit and _join(before[successor], now)
            if new and successor not in queued:
                queued.add(successor)
                heappush(waiting, (rank[successor], successor))
    return before


def _after(
    flow: FlowGraph,
    operands: Sequence[Operands],
    before: Sequence[_Writers],
    block: int,
    live: Sequence[set[int]],
) -> dict[int, frozenset[int]]:
    """Return, for the end of a block, the writers of each value that may still be read."""
    now = dict(before[block])
    for position in range(flow.blocks[block].start, flow.blocks[block].end):
        _apply(now, position, operands[position])
    return {value: now[value] for value in live[block] if value in now}


def _at_end(
    flow: FlowGraph,
    operands: Sequence[Operands],
    before: Sequence[dict[int, frozenset[int]]],
    live: Sequence[set[int]],
) -> dict[int, frozenset[int]]:
    """Return the writers of each value at the end of the method."""
    found: dict[int, frozenset[int]] = {}
    for number, block in enumerate(flow.blocks):
        if flow.exit in block.successors:
            _join(found, _after(flow, operands, before, number, live))
    return found


def _join(into: dict[int, frozenset[int]], other: _Writers) -> bool:
    """Add the writers from another path through the method. Return True if this changed ``into``."""
    changed = False
    for value, writers in other.items():
        known = into.get(value, frozenset())
        if not writers <= known:
            into[value] = known | writers
            changed = True
    return changed
