"""Choice of the methods that keep their memory plan from before the link."""

from __future__ import annotations

from etdev.linker.file_banks import file_banks
from etdev.linker.options import Linked, MethodReport
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from etdev.program.analysis.storage import method_memory
from etdev.program.delegates import delegate_devices, delegate_inputs
from etdev.program.footprint import buffer_sizes, planned_buffers, planned_memory
from etdev.program.writer import flatbuffer_size
from etdev.units import format_count


def kept_report(plan: m.ExecutionPlan, reason: str | None) -> MethodReport:
    """Return the report on a method that keeps its plan, including the reason."""
    positions = {position: position for position in range(len(plan.instructions))}
    return MethodReport(plan.name, planned_buffers(plan), (), (), positions, reason)


def methods_with_smaller_plans(program: Program, linked: Linked) -> dict[str, str]:
    """Return the methods that should keep their original plans, each with the reason.

    The original plan of a method may be smaller than the new one. The original planner may have found a better plan. Or
    the storages recovered from the original plan may be too large.

    The decision is separate for each method, unless a new plan has a buffer of state. With such a buffer, a mix of old
    and new plans could place temporaries of one method over state of another method. So the decision is the same for
    all methods. No method keeps its plan if the original program has state in the buffer of temporaries. The new
    plan may then need more memory, but protects that state from other methods.

    A program with memory on devices keeps its plans if the new plans need more instructions and do not save memory.
    Such new plans copy some content more than once. New plans are required if a delegate and its arguments are on
    different devices, because the original program lacks copies. New plans are rejected if they save nothing and make
    the file larger.

    New plans that use the program's own banks never enlarge a bank. Other new plans of a program with temporaries in
    several buffers may enlarge a buffer. In that case, all methods keep their plans.
    """
    if not all(map(_is_placed, program.execution_plan)):
        return {}
    if any(plan.non_const_buffer_device for plan in program.execution_plan):
        return _on_devices(program, linked)
    if linked.banks is not None:
        # The linker may find another division of the same size. So the old plans remain if the file is not smaller.
        return _saving_nothing(program, linked, least=0)
    if grown := _grown_bank(program, linked):
        return _all(linked, grown)
    if any(buffer.state for report in linked.methods for buffer in report.buffers):
        more = _total(linked.program) - _total(program)
        if more > 0 and all(_has_separate_state(program, plan) for plan in program.execution_plan):
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
    return _all(linked, f"a new plan would need {format_count(more, 'more instruction')}, and would not save memory")


def _saving_nothing(program: Program, linked: Linked, least: int = 1) -> dict[str, str]:
    """Map each method to a reason to keep its plan. The map is empty unless new plans save nothing.

    New plans save nothing if memory and the number of instructions stay the same, and the file grows by ``least`` bytes
    or more.
    """
    if list(map(_needs, program.execution_plan)) != list(map(_needs, linked.program.execution_plan)):
        return {}
    more = flatbuffer_size(linked.program) - flatbuffer_size(program)
    larger = f", and the file would be {more:,} bytes larger" if more > 0 else ""
    return _all(linked, f"a new plan would save nothing{larger}") if more >= least else {}


def _grown_bank(program: Program, linked: Linked) -> str | None:
    """Return a sentence that states which buffer grows in the new plans, and by how many bytes.

    Return None if no buffer grows, or if the program has no temporaries outside of buffer 1.
    """
    if file_banks(program) is None:
        return None
    before, after = buffer_sizes(program), buffer_sizes(linked.program)
    for buffer, size in after.items():
        if size > before.get(buffer, 0):
            return f"a new plan would need {format_count(size - before.get(buffer, 0), 'more byte')} in buffer {buffer}"
    return None


def _needs(plan: m.ExecutionPlan) -> tuple[object, ...]:
    count = len(plan.instructions)
    return plan.non_const_buffer_sizes, plan.non_const_buffer_device, count


def _all(linked: Linked, reason: str) -> dict[str, str]:
    return {report.name: reason for report in linked.methods if report.kept is None}


def _is_placed(plan: m.ExecutionPlan) -> bool:
    """Return whether the arguments of each delegate on a device are on that device.

    Inside branches, ExecuTorch 1.4.1 and 1.5.1 leave these arguments on the host.
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
    return f"a new plan would need {format_count(more, 'more byte')}"


def _has_separate_state(program: Program, plan: m.ExecutionPlan) -> bool:
    """Return whether all state is outside of buffer 1, which holds the temporaries of every method."""
    memory = method_memory(plan, delegate_inputs(program, plan))
    return all(item.memory_id > 1 for item in memory.storages if item.persistent)


def _total(program: Program) -> int:
    return sum(planned_memory(program).values())
