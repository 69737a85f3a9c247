"""The link: from a program to an equivalent program with new addresses and fewer copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from etdev.decisions import Elision
from etdev.linker.devices import device_copies, device_ends, place_on_devices, with_host_memory, without_devices
from etdev.linker.edit import aliases_first, without_unused
from etdev.linker.elide.constants import fold_constants
from etdev.linker.elide.parts import elide_parts
from etdev.linker.elide.views import elide_views
from etdev.linker.elide.writeback import elide_write_backs
from etdev.linker.inplace import work_in_place
from etdev.linker.io import leave_to_caller
from etdev.linker.joined import Storages
from etdev.linker.keep import kept_report, methods_with_smaller_plans
from etdev.linker.layout import Method, lay_out
from etdev.linker.lift import lift
from etdev.linker.options import BufferReport, CallerOwned, Linked, LinkOptions, MethodReport
from etdev.linker.state import State, kept_by_others, state_by_address, state_by_name
from etdev.linker.work import Work
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.storage import method_memory
from etdev.program.blob import Blob
from etdev.program.constants import Run, constant_count, constant_data, constants_size, with_constants
from etdev.program.delegates import delegate_inputs, unsplit_call
from etdev.program.footprint import planned_memory
from etdev.program.sidecar import MethodNotes, Sidecar
from etdev.program.used import used_values


def link(program: Program, options: LinkOptions | None = None, sidecar: Sidecar | None = None) -> Linked:
    """Plan the memory of every method again.

    With its ``sidecar``, the program is treated as an object program. Without it, the program may come from any
    toolchain, and its storages are recovered from its plan. A method that has too little information to be planned
    keeps its plan, and the report states why.

    Raises :class:`~etdev.errors.LinkError` if the program overwrites values that it still reads, or if ``options`` ask
    for something impossible.
    """
    options = options or LinkOptions()
    kept = {**options.keep, **_methods_to_keep(program, sidecar)}
    numbers = [index for index, plan in enumerate(program.execution_plan) if plan.name not in kept]
    works = [_start(program.execution_plan[index], sidecar) for index in numbers]
    works, state = _with_state(works, options, sidecar)
    alone = sum(1 for plan in program.execution_plan if any(plan.non_const_buffer_sizes)) < 2
    candidates: list[tuple[int, int, Program, list[Work], list[tuple[m.ExecutionPlan, tuple[BufferReport, ...]]]]] = []
    for finished, placed_state in _candidates(works, state, program, options, foreign=sidecar is None):
        methods = [Method(work.plan, work.memory) for work in finished]
        laid_out = lay_out(methods, placed_state, options, alone=alone)
        plans = {
            index: without_unused(plan, aliases_first(plan, work.memory, work.neighbors) if plan.delegates else None)
            for index, work, (plan, _) in zip(numbers, finished, laid_out, strict=True)
        }
        linked = _with_plans(program, plans, finished)
        candidates.append((_size(linked), len(candidates), linked, finished, laid_out))
    _, _, linked, finished, laid_out = min(candidates)
    reports = [kept_report(plan, kept.get(plan.name)) for plan in program.execution_plan]
    for index, work, (plan, buffers) in zip(numbers, finished, laid_out, strict=True):
        # The linker derives copies between host and devices again, so decisions about the old ones do not apply.
        copies = device_copies(program.execution_plan[index])
        elisions = tuple(item for item in work.elisions if item.instruction not in copies)
        inplace = tuple(item for item in work.inplace if item.instruction not in copies)
        reports[index] = MethodReport(plan.name, buffers, elisions, inplace, work.moved)
    return Linked(
        linked,
        tuple(reports),
        options.planner_name or str(options.planner),
        tuple(sorted(item.name for item in state if item.shared)),
    )


def link_foreign(program: Program, options: LinkOptions | None = None) -> Linked:
    """Link a program of any toolchain. A method whose own plan needs less memory than the new one keeps it.

    Raises as :func:`link` does.
    """
    options = options or LinkOptions()
    linked = link(program, options)
    keep = methods_with_smaller_plans(program, linked)
    if not keep:
        return linked
    # Shared state is shared, whichever planner placed it.
    return replace(link(program, replace(options, keep={**options.keep, **keep})), shared_state=linked.shared_state)


def _methods_to_keep(program: Program, sidecar: Sidecar | None) -> dict[str, str]:
    """Return the methods that keep their plan, each with the reason."""
    reasons = {plan.name: reason for plan in program.execution_plan if (reason := _reason_to_keep(plan, sidecar))}
    if reasons and any(len(plan.non_const_buffer_sizes) > 2 for plan in program.execution_plan):
        # These methods may share state with the others, at the addresses that they have.
        first = next(iter(reasons))
        for plan in program.execution_plan:
            reasons.setdefault(plan.name, f"it may share state with the method {first!r}, which keeps its plan")
    return reasons


def _reason_to_keep(plan: m.ExecutionPlan, sidecar: Sidecar | None) -> str | None:
    return unsplit_call(plan, _delegate_inputs(plan, sidecar))


def _delegate_inputs(plan: m.ExecutionPlan, sidecar: Sidecar | None) -> Mapping[int, int]:
    return delegate_inputs(plan) if sidecar is None else _notes(plan, sidecar).delegate_inputs


def _notes(plan: m.ExecutionPlan, sidecar: Sidecar) -> MethodNotes:
    """Return the sidecar's notes on a method; constant methods have none."""
    return sidecar.methods.get(plan.name, MethodNotes())


def _start(plan: m.ExecutionPlan, sidecar: Sidecar | None) -> Work:
    inputs = _delegate_inputs(plan, sidecar)
    named = _notes(plan, sidecar).state if sidecar else ()
    persistent = frozenset(note.value for note in named).intersection(used_values(plan))
    memory = method_memory(plan, inputs, persistent)
    moved = {position: position for position in range(len(memory.reaching.flow.instructions))}
    return Work(plan, memory, inputs, persistent, moved, ends=device_ends(plan))


def _with_state(
    works: Sequence[Work], options: LinkOptions, sidecar: Sidecar | None
) -> tuple[list[Work], tuple[State, ...]]:
    """Return the methods with all their persistent values known, and all their state."""
    if sidecar is None:
        others = kept_by_others([work.memory for work in works])
        works = [_keeping(work, kept) if kept else work for work, kept in zip(works, others, strict=True)]
    plans, memories = [work.plan for work in works], [work.memory for work in works]
    if sidecar is None:
        state = state_by_address(plans, memories)
    else:
        names = [{note.value: note.name for note in _notes(plan, sidecar).state} for plan in plans]
        state = state_by_name(plans, memories, names, share=options.share_state)
    found = [
        frozenset(value for item in work.memory.storages if item.persistent for value in item.values) for work in works
    ]
    return [replace(work, persistent=kept) for work, kept in zip(works, found, strict=True)], state


def _keeping(work: Work, kept: set[int]) -> Work:
    persistent = work.persistent | kept
    return replace(work, memory=method_memory(work.plan, work.inputs, persistent), persistent=persistent)


def _candidates(
    works: Sequence[Work], state: Sequence[State], program: Program, options: LinkOptions, *, foreign: bool
) -> Iterator[tuple[list[Work], Sequence[State]]]:
    """Yield variants of the methods after all passes, each with its state. The smallest one wins.

    A view of a value that may be one of several tensors keeps all of them in use. So it may cost more than the copy
    that it replaces. A constant that is in the file twice may cost more than the memory that it saves. If the first
    variant has any of these, variants without them follow.
    """

    def run(*, merged: bool, grow: bool) -> tuple[list[Work], Sequence[State]]:
        viewed = [_remove_views(work, program, options, foreign=foreign, merged=merged, grow=grow) for work in works]
        placed, found = place_on_devices(viewed, state, options)
        return [_share_bytes(work, options) for work in placed], found

    first = run(merged=True, grow=True)
    yield first
    views = any(elision.action == "view" for work in first[0] for elision in work.elisions)
    grown = any(work.grown for work in first[0])
    for merged, grow in ((False, True), (True, False), (False, False)):
        if (merged or views) and (grow or grown):
            yield run(merged=merged, grow=grow)


def _with_plans(program: Program, plans: Mapping[int, m.ExecutionPlan], works: Sequence[Work]) -> Program:
    """Return the program with the linked methods and their constants."""
    found = list(program.execution_plan)
    added: dict[Blob | Run, int] = {}
    count = constant_count(program)
    for (index, plan), work in zip(plans.items(), works, strict=True):
        numbers = [count + added.setdefault(item, len(added)) for item in work.added]
        found[index] = _with_constants_at(plan, count, numbers) if numbers else plan
    program = replace(program, execution_plan=tuple(found))
    return with_constants(program, tuple(added)) if added else program


def _with_constants_at(plan: m.ExecutionPlan, count: int, numbers: Sequence[int]) -> m.ExecutionPlan:
    values = list(plan.values)
    for index, tensor in plan.tensors():
        if tensor.is_constant and tensor.data_buffer_idx >= count:
            values[index] = replace(tensor, data_buffer_idx=numbers[tensor.data_buffer_idx - count])
    return replace(plan, values=tuple(values))


def _size(program: Program) -> int:
    """Return the bytes of planned memory and of constants."""
    return sum(planned_memory(program).values()) + constants_size(program)


def _remove_views(
    work: Work, program: Program, options: LinkOptions, *, foreign: bool, merged: bool, grow: bool
) -> Work:
    """Run the passes whose result is an object program on the host."""
    copies = device_copies(work.plan) if foreign else frozenset()
    plan = without_devices(lift(work.plan, work.memory)) if foreign else work.plan
    owned = options.caller.get(plan.name, CallerOwned())
    plan, ends = with_host_memory(leave_to_caller(plan, work.memory, owned), owned, work.ends)
    work = work.with_plan(plan)
    if "constants" in options.elide:
        folded = fold_constants(
            work.plan,
            work.memory,
            lambda tensor: constant_data(program, tensor),
            constant_count(program),
            views="views" in options.elide,
            grow=grow,
        )
        work = replace(work.after(folded.plan, folded.moved, folded.elisions), added=folded.added, grown=folded.grown)
    if "views" not in options.elide:
        return work
    now = {work.moved[position] for position in copies if position in work.moved}
    return work.after(*elide_views(work.plan, work.memory, merged=merged, apart=ends, device_copies=now))


def _share_bytes(work: Work, options: LinkOptions) -> Work:
    """Run the passes that merge storages."""
    storages = Storages(work.plan, work.memory)
    inplace = work_in_place(storages, options.inplace)
    elisions: tuple[Elision, ...] = ()
    if "write_back" in options.elide:
        elisions = elide_write_backs(storages, options.inplace)
    inplace = work_in_place(storages, options.inplace, inplace)
    elisions += elide_parts(storages, options.elide)
    start = work.starts()
    # Copies between devices did not exist before the link, so no decision is about them.
    inplace = tuple(replace(decision, instruction=start[decision.instruction]) for decision in inplace)
    added = {part: work.neighbors.get(whole, whole) for part, whole in storages.parts().items()}
    work = replace(work, neighbors={**work.neighbors, **added})
    return replace(work.after(*storages.carried_out(), elisions), inplace=inplace)
