"""Rung *plan*: does the memory plan of a file keep apart what is in use at once?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from etdev.errors import LinkError
from etdev.pipeline.proof import summarize_proof
from etdev.pipeline.result import RungResult
from etdev.planner import Buffer, PlanError, Problem, check_plan
from etdev.program import Program
from etdev.program.delegates import delegate_inputs
from etdev.program.model import DelegateCall, ExecutionPlan
from etdev.program.storage import MethodMemory, Storage, method_memory
from etdev.units import format_size

if TYPE_CHECKING:
    from etdev.pipeline.link import LinkedProgram


def check_memory_plan(
    program: Program, inputs: Mapping[str, Mapping[int, int]] | None = None, *, foreign: bool = False
) -> RungResult:
    """Recover from the bytes which tensors belong together and when they are in use, and look for collisions.

    ``inputs`` has, per method, how many arguments of each delegate call are inputs; without it, that is derived from
    the file. In a ``foreign`` program, state that only some loaders keep apart from other methods' memory is pointed
    out, in one of etdev's it is a failure.
    """
    problems: list[str] = []
    memories: dict[str, MethodMemory] = {}
    unknown = []
    for plan in program.execution_plan:
        known = delegate_inputs(plan) if inputs is None else inputs.get(plan.name, {})
        if _delegate_calls(plan) > len(known):
            unknown.append(plan.name)
            continue
        try:
            memory = method_memory(plan, known)
        except LinkError as error:
            problems.append(f"method {plan.name!r}: {error.message}")
            continue
        memories[plan.name] = memory
        if not foreign:
            # Lifetimes reach over branches that lie between. Others may have used that two branches never both run.
            problems += _collisions(plan, memory)
    disturbed = list(_disturbed_state(memories))
    if not foreign:
        problems += disturbed
    if problems:
        return RungResult(rung="plan", status="failed", summary=problems[0], problems=tuple(problems))
    if unknown:
        names = ", ".join(map(repr, unknown))
        reason = f"the file does not say which arguments of the delegate calls of {names} are outputs"
        return RungResult(rung="plan", status="not run", summary=reason)
    summary = _summary(memories)
    if disturbed:
        summary += f"; where all methods have the same buffers, {disturbed[0]}"
    return RungResult(rung="plan", status="passed", summary=summary)


def check_linked(program: Program, linked: LinkedProgram) -> RungResult:
    """The memory plan of the bytes read back, which have to be those of the program that the link was proved for."""
    rung = check_memory_plan(program, linked.delegate_inputs)
    if rung.status != "passed":
        return rung
    if program != linked.linked.program:
        problem = "the bytes read back are not the program that was linked"
        return RungResult(rung="plan", status="failed", summary=problem, problems=(problem,))
    if not linked.proof.proved:
        return RungResult(rung="plan", status="not run", summary=summarize_proof(linked.proof))
    return rung.model_copy(update={"summary": f"{summarize_proof(linked.proof)}; {rung.summary}"})


def _delegate_calls(plan: ExecutionPlan) -> int:
    return sum(isinstance(call, DelegateCall) for chain in plan.chains for call in chain.instructions)


def _collisions(plan: ExecutionPlan, memory: MethodMemory) -> Iterator[str]:
    buffers: dict[int, list[Storage]] = defaultdict(list)
    for storage in memory.storages:
        buffers[storage.memory_id].append(storage)
    for memory_id, storages in sorted(buffers.items()):
        problem = Problem(
            tuple(Buffer(item.size, item.start, item.end, 1, name=f"value {item.values[0]}") for item in storages)
        )
        try:
            check_plan(problem, [item.offset for item in storages])
        except PlanError as error:
            yield f"method {plan.name!r}, buffer {memory_id}: {error}"


def _disturbed_state(memories: Mapping[str, MethodMemory]) -> Iterator[str]:
    """State that another method writes over, where a loader gives all methods the same buffers."""
    for name, memory in memories.items():
        kept = [storage for storage in memory.storages if storage.persistent]
        for other, others in memories.items():
            for storage in kept if other != name else ():
                if any(_disturbs(found, storage) for found in others.storages):
                    value, buffer = storage.values[0], storage.memory_id
                    yield f"method {other!r} writes over the state of {name!r} (value {value} in buffer {buffer})"


def _disturbs(found: Storage, state: Storage) -> bool:
    """Does what another method has lie over the state of one?

    Behind buffer 1 lies what methods share: one may use a part of the other's state, or write it without reading what
    was there.
    """
    end, state_end = found.offset + found.size, state.offset + state.size
    if found.memory_id != state.memory_id or found.offset >= state_end or state.offset >= end:
        return False
    same = (found.offset <= state.offset and state_end <= end) or (state.offset <= found.offset and end <= state_end)
    return found.memory_id == 1 or not same


def _summary(memories: Mapping[str, MethodMemory]) -> str:
    count = sum(len(memory.of) for memory in memories.values())
    total = sum(storage.size for memory in memories.values() for storage in memory.storages)
    if not count:
        return "no tensor in planned memory"
    tensors = f"{count:,} tensor{'s' * (count != 1)}"
    return f"{tensors} of {format_size(total)} together, none over another that is in use"
