"""Delegate calls: the number of their inputs, which the file does not state, and their devices."""

from __future__ import annotations

from etdev.devices import TARGET_DEVICE, Device, DeviceNameError
from etdev.errors import LinkError
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs, tensors
from etdev.program.analysis.flow import flow_graph
from etdev.program.devices import delegate_device


def delegate_inputs(plan: m.ExecutionPlan) -> DelegateInputs:
    """Return, by position, the number of inputs of each delegate call for which the file determines it.

    Emission numbers a call's outputs when it meets the call. So outputs are the last arguments, no earlier instruction
    has them, and their numbers exceed all earlier ones. Other new values at a call are state, with a number below that
    of any input.

    The result leaves out a call

    - without such an output,
    - with a value among its inputs that would fit as an output too,
    - before which no value has a number,
    - on a device and with the same tensor twice: a delegate on a device may write an output over an input.
    """
    found: dict[int, int] = {}
    devices = {index for index, delegate in enumerate(plan.delegates) if not _is_on_host(delegate)}
    seen = set(tensors(plan, plan.inputs))
    highest = max(plan.inputs, default=-1)
    for position, call in enumerate(flow_graph(plan).instructions):
        used = arguments_of(call)
        if isinstance(call, m.DelegateCall):
            inputs = len(used)
            while inputs and _is_new(plan, used[inputs - 1], seen, highest):
                inputs -= 1
            doubtful = any(_is_new(plan, value, seen, highest) for value in used[:inputs])
            if call.delegate_index in devices:
                doubtful |= len(set(used)) < len(used)
            if inputs < len(used) and not doubtful and highest >= 0:
                found[position] = inputs
        values = tensors(plan, used)
        seen.update(values)
        highest = max((highest, *values))
    return found


def _is_on_host(delegate: m.BackendDelegate) -> bool:
    return all(spec.key != TARGET_DEVICE for spec in delegate.compile_specs)


def _is_new(plan: m.ExecutionPlan, value: int, seen: set[int], highest: int) -> bool:
    tensor = plan.values[value]
    return isinstance(tensor, m.Tensor) and not tensor.is_constant and value not in seen and value > highest


def arguments_of(call: m.Instruction) -> tuple[int, ...]:
    """Return the values that an instruction names."""
    match call:
        case m.KernelCall() | m.DelegateCall():
            return call.args
        case m.MoveCall():
            return (call.move_from, call.move_to)
        case m.JumpFalseCall():
            return (call.cond_value_index,)
        case m.FreeCall():
            return (call.value_index,)


def unsplit_call(plan: m.ExecutionPlan, inputs: DelegateInputs) -> str | None:
    """Return why a method's data flow cannot be followed: a delegate call that ``inputs`` lacks. None if it can."""
    for position, call in enumerate(flow_graph(plan).instructions):
        if isinstance(call, m.DelegateCall) and position not in inputs:
            name = plan.delegates[call.delegate_index].id
            return f"the file does not say which arguments of instruction {position} ({name}) are its outputs"
    return None


ALIAS_SAFE = frozenset({"EtdevReferenceBackend"})
"""Backends whose delegates read all inputs before they write an output, so that both may share bytes."""


def delegate_devices(plan: m.ExecutionPlan) -> dict[int, Device]:
    """Return, by position, the device of each delegate call that does not run on the host.

    Raises :class:`~etdev.errors.LinkError`, which names the instruction, if a compile spec does not name a device.
    """
    found: dict[int, Device] = {}
    for position, call in enumerate(flow_graph(plan).instructions):
        if isinstance(call, m.DelegateCall):
            try:
                device = delegate_device(plan.delegates[call.delegate_index])
            except DeviceNameError as error:
                where = f"method {plan.name!r}, instruction {position}"
                raise LinkError(error.message, where=where, hint=error.hint) from error
            if not device.is_host:
                found[position] = device
    return found
