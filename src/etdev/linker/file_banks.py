"""Banks that a program of another toolchain already uses: its planned buffers on the host."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from etdev.linker.banks import Banks
from etdev.linker.pins import Pins
from etdev.planner.banks import COST_RATIO, Bank
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import tensors
from etdev.program.analysis.storage import MethodMemory, method_memory
from etdev.program.analysis.traffic import storage_traffic
from etdev.program.delegates import delegate_inputs
from etdev.program.footprint import buffer_sizes


def file_banks(program: Program) -> Banks | None:
    """Return the banks of a program; None if the program uses no banks.

    ExecuTorch places all temporaries in buffer 1 of the host unless it is told to use banks. So a program uses banks if
    it has temporaries in another buffer of the host. The function returns None for a program with memory on devices.

    Each bank has the size that its buffer has in the program. The file does not say which bank is fast. So banks are
    ordered by the traffic per byte: planners put the tensors that are used most into the fastest bank. Arguments of
    delegates must stay in their banks, because a device may reach no other bank. Inputs, outputs and state stay in
    their banks if they share no bytes with tensors of another bank.

    Raises :class:`~etdev.errors.LinkError` if an instruction reads bytes of a tensor after a write to another tensor
    overwrote them, or if the control flow of a method is too large.
    """
    plans = program.execution_plan
    if any(plan.non_const_buffer_device for plan in plans) or all(
        len(plan.non_const_buffer_sizes) < 3 for plan in plans
    ):
        return None
    memories = [method_memory(plan, delegate_inputs(program, plan)) for plan in plans]
    temporary = {item.memory_id for memory in memories for item in memory.storages if not item.persistent and item.size}
    if temporary <= {1}:
        return None
    sizes = buffer_sizes(program)
    traffic: dict[int, int] = defaultdict(int)
    for plan, memory in zip(plans, memories, strict=True):
        for storage, nbytes in zip(memory.storages, storage_traffic(plan, memory), strict=True):
            traffic[storage.memory_id] += nbytes
    order = sorted(
        (buffer for buffer in sizes if sizes[buffer]), key=lambda at: (-Fraction(traffic[at], sizes[at]), at)
    )
    return Banks(
        tuple(Bank(_name(at), sizes[at], 1, Fraction(COST_RATIO**rank)) for rank, at in enumerate(order)),
        tuple(order),
        Pins(
            values={plan.name: _delegate_arguments(plan, memory) for plan, memory in zip(plans, memories, strict=True)},
            preferred={plan.name: _kept(plan, memory) for plan, memory in zip(plans, memories, strict=True)},
        ),
        share_most=True,
    )


def _name(buffer: int) -> str:
    return f"buffer {buffer}"


def _delegate_arguments(plan: m.ExecutionPlan, memory: MethodMemory) -> dict[int, str]:
    """Return the bank of each argument of a delegate call."""
    calls = (call for call in memory.reaching.flow.instructions if isinstance(call, m.DelegateCall))
    return _banks(memory, {value for call in calls for value in tensors(plan, call.args)})


def _kept(plan: m.ExecutionPlan, memory: MethodMemory) -> dict[int, str]:
    """Return the bank of each input, each output and each tensor of state."""
    state = (value for item in memory.storages if item.persistent for value in item.values)
    return _banks(memory, {*plan.inputs, *plan.outputs, *state})


def _banks(memory: MethodMemory, values: set[int]) -> dict[int, str]:
    found = {value: memory.storages[memory.of[value]] for value in sorted(values) if value in memory.of}
    return {value: _name(storage.memory_id) for value, storage in found.items() if storage.size}
