"""Delegate calls: their devices, and the number of their inputs, which a ``.pte`` does not state."""

from __future__ import annotations

from etdev.devices import TARGET_DEVICE, Device, DeviceNameError
from etdev.errors import LinkError
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs, tensors
from etdev.program.analysis.flow import flow_graph
from etdev.program.devices import delegate_device


def delegate_inputs(plan: m.ExecutionPlan) -> DelegateInputs:
    """Map the position of each delegate call to its number of inputs. Leave out calls for which the file is ambiguous.

    A call's outputs are its last arguments, and no earlier instruction uses them. Emission numbers them at the call. So
    their value indices are higher than those of the method's inputs, and higher than all value indices that earlier
    instructions use. State may also be unused before the call, but its index is lower than the index of any input.

    The result lacks a call in these cases:

    - By these rules, the call has no output.
    - By these rules, one of the call's inputs could also be an output.
    - The method has no inputs, and no earlier instruction uses a tensor.
    - The call is on a device and has the same tensor twice, so its delegate may write an output over an input.
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
    """Return the indices of all values that an instruction refers to."""
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
    """Return the reason why a method's data flow is unknown, or None if the data flow is known.

    ``inputs`` maps the position of a delegate call to its number of inputs. If a call is missing, the data flow is
    unknown, because the call's inputs and outputs are unknown.
    """
    for position, call in enumerate(flow_graph(plan).instructions):
        if isinstance(call, m.DelegateCall) and position not in inputs:
            name = plan.delegates[call.delegate_index].id
            return f"the file does not say which arguments of instruction {position} ({name}) are its outputs"
    return None


ALIAS_SAFE = frozenset({"EtdevReferenceBackend"})
"""Backends whose delegates read all inputs before they write any output. So an output may share bytes with an input."""


STATELESS = frozenset({"EthosUBackend", "EtdevReferenceBackend", "XnnpackBackend"})
"""Backends whose delegates change only their outputs and their own state.

Calls of two such delegates may run in any order, unless one call reads an output of the other call. Calls of the same
delegate keep their order.
"""


def delegate_devices(plan: m.ExecutionPlan) -> dict[int, Device]:
    """Map the position of each delegate call to the device that runs it. Leave out calls on the host.

    Raises :class:`~etdev.errors.LinkError` if a compile spec does not name a device. The error names the instruction.
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
