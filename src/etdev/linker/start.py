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
from etdev.program.delegates import delegate_inputs, unsplit_call
from etdev.program.sidecar import MethodNotes, Sidecar
from etdev.program.used import used_values


def methods_to_keep(program: Program, sidecar: Sidecar | None) -> dict[str, str]:
    """Return the methods that keep their plans because facts are missing, each with the reason."""
    reasons = {
        plan.name: reason
        for plan in program.execution_plan
        if (reason := unsplit_call(plan, _delegate_inputs(program, plan, sidecar)))
    }
    if reasons and any(len(plan.non_const_buffer_sizes) > 2 for plan in program.execution_plan):
        # These methods may share state with other methods, which must then keep its addresses too.
        first = next(iter(reasons))
        for plan in program.execution_plan:
            reasons.setdefault(plan.name, f"it may share state with the method {first!r}, which keeps its plan")
    return reasons


def _delegate_inputs(program: Program, plan: m.ExecutionPlan, sidecar: Sidecar | None) -> Mapping[int, int]:
    return delegate_inputs(program, plan) if sidecar is None else _notes(plan, sidecar).delegate_inputs


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
