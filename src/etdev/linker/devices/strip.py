"""Removal of another toolchain's placement on devices, and of its copies between host and devices.

Later passes then place tensors on devices and insert copies.
"""

from __future__ import annotations

from dataclasses import replace

from etdev.devices import Device, DeviceType
from etdev.linker.edit import with_operator
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from etdev.program.devices import is_device_copy

_GAP = 64
"""Minimum gap in bytes between the contents of two device buffers after both have moved to buffer 1."""


def device_ends(plan: m.ExecutionPlan) -> tuple[dict[int, Device], dict[int, Device]]:
    """Map the positions of inputs to devices, and the positions of outputs to devices. Omit tensors on the host."""
    found: tuple[dict[int, Device], dict[int, Device]] = ({}, {})
    for indices, ends in zip((plan.inputs, plan.outputs), found, strict=True):
        for position, value in enumerate(indices):
            tensor = plan.values[value]
            if isinstance(tensor, m.Tensor) and not tensor.device.is_host:
                ends[position] = tensor.device
    return found


def device_copies(plan: m.ExecutionPlan) -> frozenset[int]:
    """Return the positions of the copies between the host and devices."""
    operators = _between_devices(plan)
    calls = enumerate(flow_graph(plan).instructions)
    return frozenset(at for at, call in calls if isinstance(call, m.KernelCall) and call.op_index in operators)


def _between_devices(plan: m.ExecutionPlan) -> set[int]:
    return {index for index, operator in enumerate(plan.operators) if is_device_copy(operator)}


def strip_devices(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Move all tensors of a method to the host if the program was built elsewhere.

    The method's copies between host and devices become ordinary copies. Every storage must already have an address of
    its own.
    """
    return Changed(replace(method, plan=_without_devices(method.plan)) if work.foreign else method)


def _without_devices(plan: m.ExecutionPlan) -> m.ExecutionPlan:
    elsewhere = [entry.buffer_idx for entry in plan.non_const_buffer_device if entry.device_type]
    if elsewhere:
        sizes = list(plan.non_const_buffer_sizes)
        base: dict[int, int] = {}
        for buffer in sorted(elsewhere):
            base[buffer] = (sizes[1] + 2 * _GAP - 1) // _GAP * _GAP
            sizes[1], sizes[buffer] = base[buffer] + sizes[buffer], 0
        plan = replace(
            plan,
            values=tuple(_on_host(value, base) for value in plan.values),
            non_const_buffer_sizes=tuple(sizes),
        )
    else:
        plan = replace(plan, values=tuple(_on_host(value, {}) for value in plan.values))
    return replace(_with_plain_copies(plan), non_const_buffer_device=())


def _on_host(value: m.Value, base: dict[int, int]) -> m.Value:
    if not isinstance(value, m.Tensor):
        return value
    place, info = value.allocation_info, value.extra_tensor_info
    if place is not None and place.memory_id in base:
        value = replace(value, allocation_info=m.AllocationDetails(1, base[place.memory_id] + place.memory_offset))
    if info is not None and (info.device_type or info.device_index):
        info = replace(info, device_type=DeviceType.CPU, device_index=0)
        value = replace(value, extra_tensor_info=None if info == m.ExtraTensorInfo() else info)
    return value


def _with_plain_copies(plan: m.ExecutionPlan) -> m.ExecutionPlan:
    """Return the method with ``alias_copy`` in place of the copies between host and devices."""
    old = _between_devices(plan)
    if not old:
        return plan
    plan, plain = with_operator(plan, "aten::alias_copy", "out")
    chains = []
    for chain in plan.chains:
        calls = (
            replace(call, op_index=plain) if isinstance(call, m.KernelCall) and call.op_index in old else call
            for call in chain.instructions
        )
        chains.append(replace(chain, instructions=tuple(calls)))
    return replace(plan, chains=tuple(chains))
