"""Lifting: turn a method that reuses memory into the form of an object program, in which only aliases share bytes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from etdev.linker.edit import placed_at
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory

_GAP = 64
"""Gap in bytes between two storages. If a tensor extends past its storage, the excess is inside the gap."""


def lift_foreign(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Lift a method if the program may come from another toolchain. The method's plan may then reuse memory.

    If the link places tensors in banks, the original buffers on the host have no meaning. In that case, the pass moves
    all tensors on the host to one buffer. Tensors from different original buffers may then share bytes.
    """
    return _lifted(method, joined=options.banks is not None) if work.foreign else Changed(method)


def lift_placed(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Lift a method with tensors on devices. The pass ``join branches`` made some of the method's storages overlap."""
    return _lifted(method) if method.neighbors else Changed(method)


def _lifted(method: Method, *, joined: bool = False) -> Changed:
    return Changed(replace(method, plan=lift(method.plan, method.memory, joined=joined)))


def lift(plan: m.ExecutionPlan, memory: MethodMemory, *, joined: bool = False) -> m.ExecutionPlan:
    """Return the method with a separate address for each storage.

    Each storage stays in its buffer. If ``joined`` is set, all storages on the host are in buffer 1 instead.
    """
    values = list(plan.values)
    ends: dict[int, int] = defaultdict(int)

    def buffer_of(memory_id: int) -> int:
        return 1 if joined and plan.buffer_device(memory_id).is_host else memory_id

    for storage in memory.storages:
        buffer = buffer_of(storage.memory_id)
        base = ends[buffer]
        for value in storage.values:
            offset = base + memory.reaching.places[value].start - storage.offset
            values[value] = placed_at(values[value], m.AllocationDetails(buffer, offset))
        ends[buffer] = (base + storage.size + 2 * _GAP - 1) // _GAP * _GAP
    sizes = [ends.get(index, 0) for index in range(len(plan.non_const_buffer_sizes))]
    for index, tensor in plan.tensors():
        allocation = tensor.allocation_info
        if allocation is not None and index not in memory.of:
            values[index] = placed_at(tensor, m.AllocationDetails(buffer_of(allocation.memory_id), 0))
    return replace(plan, values=tuple(values), non_const_buffer_sizes=tuple(sizes))
