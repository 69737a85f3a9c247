"""Devices that a program's delegates, planned buffers and tensors use."""

from __future__ import annotations

from etdev.devices import HOST, TARGET_DEVICE, Device, DeviceNameError, parse_device
from etdev.program import model as m

H2D_COPY, D2H_COPY = "et_copy::_h2d_copy", "et_copy::_d2h_copy"
"""Operators that copy between the host and a device. Their arguments are ``(self, out, out)``."""


def is_device_copy(operator: m.Operator) -> bool:
    """Return True if an operator copies between the host and a device. Only the overload ``out`` counts."""
    return operator.name in (H2D_COPY, D2H_COPY) and operator.overload == "out"


def delegate_device(delegate: m.BackendDelegate) -> Device:
    """Return the device of a delegate's arguments, from its compile spec ``target_device``.

    Without that compile spec, the device is the host. Raises :class:`~etdev.devices.DeviceNameError` if the compile
    spec does not name a device.
    """
    specs = [spec.value for spec in delegate.compile_specs if spec.key == TARGET_DEVICE]
    if not specs:
        return HOST
    if len(set(specs)) > 1:
        raise DeviceNameError(
            f"the delegate {delegate.id!r} has several compile specs {TARGET_DEVICE!r}: {', '.join(map(repr, specs))}",
            hint="keep one of them",
        )
    try:
        return parse_device(specs[0].decode("ascii", errors="backslashreplace"))
    except DeviceNameError as error:
        raise DeviceNameError(
            f"the compile spec {TARGET_DEVICE!r} of the delegate {delegate.id!r} does not name a device: {specs[0]!r}",
            hint=error.hint,
        ) from None


def named_devices(program: m.Program) -> tuple[Device, ...]:
    """Return the sorted devices that a program's tensors, buffers and delegates use. Leave out the host.

    A compile spec that does not name a device is ignored.
    """
    found: set[Device] = set()
    for plan in program.execution_plan:
        found.update(Device(entry.device_type, entry.device_index) for entry in plan.non_const_buffer_device)
        found.update(tensor.device for _, tensor in plan.tensors())
        for delegate in plan.delegates:
            try:
                found.add(delegate_device(delegate))
            except DeviceNameError:
                continue
    return tuple(sorted(device for device in found if not device.is_host))
