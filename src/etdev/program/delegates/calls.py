"""Delegate calls: their arguments, their devices, and what is known about their backends."""

from __future__ import annotations

from etdev.devices import Device, DeviceNameError
from etdev.errors import LinkError
from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from etdev.program.devices import delegate_device

XNNPACK = "XnnpackBackend"
REFERENCE = "EtdevReferenceBackend"

ALIAS_SAFE = frozenset({REFERENCE})
"""Backends whose delegates read all inputs before they write any output. So an output may share bytes with an input."""

STATELESS = frozenset({"EthosUBackend", REFERENCE, XNNPACK})
"""Backends whose delegates change only their outputs and their own state.

Calls of two such delegates may run in any order, unless one call reads an output of the other call. Calls of the same
delegate keep their order.
"""


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
