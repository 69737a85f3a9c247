"""Unused bytes of a program's methods, which the native host fills with poison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from etdev.errors import EtdevError, LinkError
from etdev.program import Program, parse
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs
from etdev.program.analysis.flow import FlowGraph, flow_graph
from etdev.program.analysis.storage import MethodMemory, method_memory
from etdev.program.analysis.unused import CALL, Range, is_live, unused_before, without
from etdev.program.delegates import REFERENCE, delegate_inputs, unsplit_call

Unused = Mapping[int, list[Range]]
"""Maps the position of an instruction to the byte ranges that become unused before it runs."""


@dataclass(frozen=True, slots=True)
class MethodUnused:
    """Unused bytes of a method, and of the nested programs in its reference delegates."""

    own: Unused = field(default_factory=dict)
    nested: tuple[Unused, ...] = ()
    """Unused bytes of each nested program, in the order of the delegates; an entry is empty if its analysis fails."""


def unused_bytes(program: Program, known: Mapping[str, DelegateInputs], *, shared: bool) -> dict[str, MethodUnused]:
    """Map each method to its unused bytes. Leave out methods whose data flow cannot be analyzed.

    ``known`` contains a map for each method: from the position of a delegate call to the call's number of inputs. If
    ``shared``, methods share their planned buffers, so the state of a method counts as used in all other methods. The
    result with ``shared`` is empty if the data flow of any method cannot be analyzed.
    """
    memories: dict[str, tuple[m.ExecutionPlan, MethodMemory]] = {}
    for plan in program.execution_plan:
        inputs = _inputs(program, plan, known.get(plan.name, {}))
        if inputs is not None and len(plan.chains) <= 1:
            with suppress(LinkError):
                memories[plan.name] = plan, method_memory(plan, inputs)
    if shared and len(memories) < len(program.execution_plan):
        return {}
    found = {}
    for name, (plan, memory) in memories.items():
        kept = [
            (storage.memory_id, storage.offset, storage.offset + storage.size)
            for other, (_, each) in memories.items()
            for storage in each.storages
            if shared and other != name and storage.persistent
        ]
        own = _observed(plan, memory, unused_before(plan, memory, kept))
        found[name] = MethodUnused(own, tuple(_nested(program, plan)))
    return found


def _nested(program: Program, plan: m.ExecutionPlan) -> Iterator[Unused]:
    for delegate in plan.delegates:
        if delegate.id == REFERENCE:
            found: Unused = {}
            with suppress(EtdevError):
                inner = parse(program.delegate_data(delegate))
                unused = unused_bytes(inner, {}, shared=False).get(inner.execution_plan[0].name)
                found = {} if unused is None else unused.own
            yield found


def _observed(plan: m.ExecutionPlan, memory: MethodMemory, unused: Unused) -> Unused:
    """Replace each position in ``unused`` by the positions of the kernel calls or delegate calls that may run next.

    ExecuTorch reports only these calls to the host, so the host can fill bytes only before these calls. Omit bytes that
    are in use again at the new position.
    """
    graph = flow_graph(plan)
    found: dict[int, list[Range]] = {}
    for position, ranges in unused.items():
        for call in [CALL] if position == CALL else _next_calls(graph, position):
            if call == position:
                found.setdefault(call, []).extend(ranges)
                continue
            for buffer, start, end in ranges:
                live = sorted(
                    (storage.offset, storage.offset + storage.size)
                    for storage in memory.storages
                    if storage.memory_id == buffer and storage.size and is_live(storage, 1 + call)
                )
                found.setdefault(call, []).extend((buffer, *part) for part in without((start, end), live))
    return {position: ranges for position, ranges in found.items() if ranges}


def _next_calls(graph: FlowGraph, position: int) -> list[int]:
    """Return the positions of the first calls of kernels and delegates that may run at or after a position."""
    found, seen, waiting = [], {position}, [position]
    while waiting:
        at = waiting.pop()
        if isinstance(graph.instructions[at], m.KernelCall | m.DelegateCall):
            found.append(at)
            continue
        for following in _successors(graph, at):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return sorted(found)


def _successors(graph: FlowGraph, position: int) -> list[int]:
    block = next(block for block in graph.blocks if block.start <= position < block.end)
    if position + 1 < block.end:
        return [position + 1]
    return [graph.blocks[number].start for number in block.successors if number != graph.exit]


def _inputs(program: Program, plan: m.ExecutionPlan, known: DelegateInputs) -> DelegateInputs | None:
    """Map the position of each delegate call to its number of inputs. Return None if one number is unknown."""
    found = {**delegate_inputs(program, plan), **known}
    return found if unsplit_call(plan, found) is None else None
