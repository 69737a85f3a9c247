"""Methods that keep the plan that they came with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from etdev.linker.options import BufferReport, Linked, MethodReport
from etdev.program import Program
from etdev.program import model as m
from etdev.program.delegates import delegate_inputs
from etdev.program.footprint import buffer_device, planned_memory
from etdev.program.storage import method_memory


def kept_report(plan: m.ExecutionPlan, reason: str | None) -> MethodReport:
    """What is said of a method whose plan stays, and why it does."""
    count = sum(len(chain.instructions) for chain in plan.chains)
    buffers = tuple(
        BufferReport(index, buffer_device(plan, index), size, size, 0, state=False)
        for index, size in enumerate(plan.non_const_buffer_sizes)
        if index
    )
    return MethodReport(plan.name, buffers, (), (), {position: position for position in range(count)}, reason)


def keep_smaller_plans(program: Program, linked: Linked) -> Linked:
    """Give what came with a smaller plan its own back: its planner was lucky, or what a plan lets recover is too much.

    Methods one by one, unless there is state in a buffer of its own: old and new plans beside each other could lay the
    temporaries of one method over the state of another. Then it is all of them or none, and none if some of the state
    lay among temporaries: its new place, where no method writes over it, is worth what it takes.
    """
    if any(_has_state(report) for report in linked.methods):
        more = _total(linked.program) - _total(program)
        if more > 0 and all(map(_state_is_apart, program.execution_plan)):
            return _with_own(program, linked, range(len(linked.methods)), more)
        return linked
    for number, (before, after) in enumerate(zip(program.execution_plan, linked.program.execution_plan, strict=True)):
        more = sum(after.non_const_buffer_sizes) - sum(before.non_const_buffer_sizes)
        linked = _with_own(program, linked, [number], more)
    return linked


def _state_is_apart(plan: m.ExecutionPlan) -> bool:
    """Is none of its state in buffer 1, where every method has its temporaries?"""
    memory = method_memory(plan, delegate_inputs(plan))
    return all(item.memory_id > 1 for item in memory.storages if item.persistent)


def _has_state(report: MethodReport) -> bool:
    return any(buffer.state for buffer in report.buffers)


def _total(program: Program) -> int:
    return sum(planned_memory(program).values())


def _with_own(program: Program, linked: Linked, numbers: Collection[int], more: int) -> Linked:
    """With the plans that some methods came with, if the new ones need ``more`` bytes."""
    if more <= 0:
        return linked
    plans, reports = list(linked.program.execution_plan), list(linked.methods)
    for number in numbers:
        if reports[number].kept is None:
            plans[number] = program.execution_plan[number]
            reports[number] = kept_report(plans[number], f"a new plan would need {more:,} bytes more")
    return replace(linked, program=replace(linked.program, execution_plan=tuple(plans)), methods=tuple(reports))
