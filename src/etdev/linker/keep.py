"""Methods that keep their original plan."""

from __future__ import annotations

from etdev.linker.options import BufferReport, Linked, MethodReport
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from etdev.program.analysis.storage import method_memory
from etdev.program.delegates import delegate_devices, delegate_inputs
from etdev.program.footprint import planned_memory
from etdev.program.writer import flatbuffer_size


def kept_report(plan: m.ExecutionPlan, reason: str | None) -> MethodReport:
    """Return the report on a method that keeps its plan, with the reason."""
    count = len(plan.instructions)
    buffers = tuple(
        BufferReport(index, str(plan.buffer_device(index)), size, size, 0, state=False)
        for index, size in enumerate(plan.non_const_buffer_sizes)
        if index
    )
    return MethodReport(plan.name, buffers, (), (), {position: position for position in range(count)}, reason)


def methods_with_smaller_plans(program: Program, linked: Linked) -> dict[str, str]:
    """Return the methods whose original plan should be kept, each with the reason.

    An original plan may be smaller: its planner may have been lucky, or the storages recovered from it may be too
    large. Methods are decided one by one, unless there is state in a buffer of its own. A mix of old and new plans
    could then place temporaries of one method over the state of another. So either all methods keep their plans or none
    does. None does if some of the state was among temporaries: a new place, where no method overwrites it, is worth its
    memory.

    A program with memory on devices keeps its plans if the new ones need more instructions and no less memory. The new
    plans would then repeat copies. A program whose delegates receive memory of another device than theirs keeps none,
    since it lacks copies. New plans that save nothing and make the file larger are rejected.
    """
    if not all(map(_is_placed, program.execution_plan)):
        return {}
    if any(plan.non_const_buffer_device for plan in program.execution_plan):
        return _on_devices(program, linked)
    if any(buffer.state for report in linked.methods for buffer in report.buffers):
        more = _total(linked.program) - _total(program)
        if more > 0 and all(map(_state_is_apart, program.execution_plan)):
            return _all(linked, _reason(more))
        return _saving_nothing(program, linked)
    found = {}
    for before, after, report in zip(
        program.execution_plan, linked.program.execution_plan, linked.methods, strict=True
    ):
        more = sum(after.non_const_buffer_sizes) - sum(before.non_const_buffer_sizes)
        if more > 0 and report.kept is None:
            found[report.name] = _reason(more)
    return found or _saving_nothing(program, linked)


def _on_devices(program: Program, linked: Linked) -> dict[str, str]:
    more = _instructions(linked.program) - _instructions(program)
    if more <= 0 or _total(linked.program) < _total(program):
        return _saving_nothing(program, linked)
    return _all(linked, f"a new plan would need {more:,} instructions more, and no less memory")


def _saving_nothing(program: Program, linked: Linked) -> dict[str, str]:
    """Keep all methods if the new plans need as much memory and as many instructions, in a larger file."""
    if list(map(_needs, program.execution_plan)) != list(map(_needs, linked.program.execution_plan)):
        return {}
    more = flatbuffer_size(linked.program) - flatbuffer_size(program)
    return _all(linked, f"a new plan would save nothing, in a file {more:,} bytes larger") if more > 0 else {}


def _needs(plan: m.ExecutionPlan) -> tuple[object, ...]:
    count = len(plan.instructions)
    return plan.non_const_buffer_sizes, plan.non_const_buffer_device, count


def _all(linked: Linked, reason: str) -> dict[str, str]:
    return {report.name: reason for report in linked.methods if report.kept is None}


def _is_placed(plan: m.ExecutionPlan) -> bool:
    """Return whether the arguments of all delegates on devices are on these devices.

    ExecuTorch 1.4.1 leaves them on the host inside branches.
    """
    devices, calls = delegate_devices(plan), flow_graph(plan).instructions
    return all(
        tensor.device == device
        for position, device in devices.items()
        if isinstance(call := calls[position], m.DelegateCall)
        for value in call.args
        if isinstance(tensor := plan.values[value], m.Tensor)
    )


def _instructions(program: Program) -> int:
    return sum(len(plan.instructions) for plan in program.execution_plan)


def _reason(more: int) -> str:
    return f"a new plan would need {more:,} bytes more"


def _state_is_apart(plan: m.ExecutionPlan) -> bool:
    """Return whether none of the state is in buffer 1, which holds the temporaries of every method."""
    memory = method_memory(plan, delegate_inputs(plan))
    return all(item.memory_id > 1 for item in memory.storages if item.persistent)


def _total(program: Program) -> int:
    return sum(planned_memory(program).values())
