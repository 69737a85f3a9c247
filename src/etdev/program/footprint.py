"""How much memory a program plans, per buffer and per device."""

from __future__ import annotations

from etdev.program.model import DeviceType, ExecutionPlan, Program


def buffer_device(plan: ExecutionPlan, buffer: int) -> str:
    """``cpu`` or ``cuda:0``: where a planned buffer of a method is. ``buffer`` counts from 1 on."""
    for entry in plan.non_const_buffer_device:
        if entry.buffer_idx == buffer and entry.device_type is not DeviceType.CPU:
            return f"{entry.device_type.name.lower()}:{entry.device_index}"
    return "cpu"


def planned_memory(program: Program) -> dict[str, int]:
    """Bytes per device: the sum over buffers of the largest size that any method gives them; ``cpu`` always."""
    largest: dict[tuple[str, int], int] = {}
    for plan in program.execution_plan:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            if index:
                key = (buffer_device(plan, index), index)
                largest[key] = max(largest.get(key, 0), size)
    memory = {"cpu": 0}
    for (device, _), size in sorted(largest.items()):
        memory[device] = memory.get(device, 0) + size
    return memory
