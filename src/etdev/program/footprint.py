"""How much memory a program plans, per buffer and per device."""

from __future__ import annotations

from etdev.devices import HOST, Device
from etdev.program.model import Program


def planned_memory(program: Program) -> dict[str, int]:
    """Bytes per device: the sum over buffers of the largest size that any method gives them; ``cpu`` always."""
    largest: dict[tuple[Device, int], int] = {}
    for plan in program.execution_plan:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            if index:
                key = (plan.buffer_device(index), index)
                largest[key] = max(largest.get(key, 0), size)
    memory = {str(HOST): 0}
    for (device, _), size in sorted(largest.items()):
        memory[str(device)] = memory.get(str(device), 0) + size
    return memory
