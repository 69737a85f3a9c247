"""Start of a link: the methods to plan again, and the facts about them before the first pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from etdev.linker.devices.strip import device_copies, device_ends
from etdev.linker.options import LinkOptions
from etdev.linker.pins import pinned_values
from etdev.linker.state import kept_by_others, state_by_address, state_by_name
from etdev.linker.work import Analysis, Method, Work
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import effects
from etdev.program.analysis.flow import FlowGraph, flow_graph
from etdev.program.delegates import delegate_inputs, unsplit_call
from etdev.program.sidecar import MethodNotes, Sidecar
from etdev.program.used import used_values


def methods_to_keep(program: Program, sidecar: Sidecar | None) -> dict[str, str]:
    """Return the methods that keep their plans because facts are missing or contradict, each with the reason."""
    reasons = {
        plan.name: reason
        for plan in program.execution_plan
        for inputs in (_delegate_inputs(program, plan, sidecar),)
        if (reason := unsplit_call(plan, inputs) or _read_after_free(plan, inputs) or _unlike_move(plan))
    }
    if reasons and any(len(plan.non_const_buffer_sizes) > 2 for plan in program.execution_plan):
        # These methods may share state with other methods, which must then keep its addresses too.
        first = next(iter(reasons))
        for plan in program.execution_plan:
            reasons.setdefault(plan.name, f"it may share state with the method {first!r}, which keeps its plan")
    return reasons


def _delegate_inputs(program: Program, plan: m.ExecutionPlan, sidecar: Sidecar | None) -> Mapping[int, int]:
    return delegate_inputs(program, plan) if sidecar is None else _notes(plan, sidecar).delegate_inputs


def _read_after_free(plan: m.ExecutionPlan, inputs: Mapping[int, int]) -> str | None:
    """Return which instruction may read a tensor in planned memory after it was freed; None if there is none.

    Such a tensor has no pointer from the first free on, and no later write gives it one.
    """
    flow = flow_graph(plan)
    freed = {
        position: call.value_index
        for position, call in enumerate(flow.instructions)
        if isinstance(call, m.FreeCall) and _is_planned(plan.values[call.value_index])
    }
    before = _freed_before(flow, freed) if freed else {}
    for number, values in before.items():
        gone = set(values)
        for position in range(flow.blocks[number].start, flow.blocks[number].end):
            found = effects(plan, flow.instructions[position], inputs.get(position))
            read = gone.intersection((*found.reads, *found.updates))
            if read:
                return f"instruction {position} may read value {min(read)} after it was freed"
            gone |= {freed[position]} if position in freed else set()
    return None


def _unlike_move(plan: m.ExecutionPlan) -> str | None:
    """Return which move gives a tensor another element type or fixed number of bytes; None if there is none.

    The values of later calls then do not have the forms that the file states.
    """
    for position, call in enumerate(plan.instructions):
        if not isinstance(call, m.MoveCall):
            continue
        origin, to = plan.values[call.move_from], plan.values[call.move_to]
        if not (isinstance(origin, m.Tensor) and isinstance(to, m.Tensor)):
            continue
        fixed = {origin.shape_dynamism, to.shape_dynamism} == {m.TensorShapeDynamism.STATIC}
        if origin.scalar_type != to.scalar_type or (fixed and origin.nbytes != to.nbytes):
            return f"instruction {position} gives value {call.move_to} another type or size than the file states"
    return None


def _is_planned(value: m.Value) -> bool:
    return isinstance(value, m.Tensor) and value.allocation_info is not None


def _freed_before(flow: FlowGraph, freed: Mapping[int, int]) -> dict[int, frozenset[int]]:
    """Return the tensors that may be freed before each reachable block. ``freed`` maps frees to their tensors."""
    found = {number: frozenset[int]() for number in flow.order()}
    waiting = list(found)
    while waiting:
        block = flow.blocks[number := waiting.pop()]
        after = found[number].union(freed[at] for at in range(block.start, block.end) if at in freed)
        for successor in block.successors:
            if successor != flow.exit and not after <= found[successor]:
                found[successor] |= after
                waiting.append(successor)
    return found


def _notes(plan: m.ExecutionPlan, sidecar: Sidecar) -> MethodNotes:
    """Return the sidecar's notes on a method. The notes on a constant method are empty."""
    return sidecar.methods.get(plan.name, MethodNotes())


def start(program: Program, numbers: Sequence[int], options: LinkOptions, sidecar: Sidecar | None) -> Work:
    """Return the input of the first pass, for the methods with these numbers."""
    methods = [_start_method(program, program.execution_plan[index], sidecar) for index in numbers]
    if sidecar is None:
        others = kept_by_others([method.memory for method in methods])
        methods = [
            _with_persistent(method, kept) if kept else method for method, kept in zip(methods, others, strict=True)
        ]
    plans, memories = [method.plan for method in methods], [method.memory for method in methods]
    if sidecar is None:
        state = state_by_address(plans, memories)
    else:
        names = [{note.value: note.name for note in _notes(plan, sidecar).state} for plan in plans]
        state = state_by_name(plans, memories, names, share=options.share_state)
    found = [
        frozenset(value for item in memory.storages if item.persistent for value in item.values) for memory in memories
    ]
    methods = [replace(method, persistent=kept) for method, kept in zip(methods, found, strict=True)]
    if options.banks is not None:
        methods = [
            replace(method, pinned=pinned_values(number, method.plan, state, options.banks.pins))
            for number, method in enumerate(methods)
        ]
    return Work(program, tuple(methods), state, foreign=sidecar is None)


def _start_method(program: Program, plan: m.ExecutionPlan, sidecar: Sidecar | None) -> Method:
    inputs = _delegate_inputs(program, plan, sidecar)
    named = _notes(plan, sidecar).state if sidecar else ()
    persistent = frozenset(note.value for note in named).intersection(used_values(plan))
    copies = device_copies(plan) if sidecar is None else frozenset[int]()
    return Method(plan, Analysis(plan, inputs, persistent), inputs, persistent, copies, device_ends=device_ends(plan))


def _with_persistent(method: Method, kept: set[int]) -> Method:
    persistent = method.persistent | kept
    return replace(method, analysis=Analysis(method.plan, method.inputs, persistent), persistent=persistent)
