"""Rules for devices: memory must be on the device that accesses it.

The rules apply to tensors, planned buffers, copies and arguments of delegates. Each function whose name ends in
``problems`` yields one sentence for each violation. The rules do not follow the data flow: the checks *plan* and
*replay* verify the content of copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.devices import HOST, MAX_INDEX, Device, DeviceNameError
from etdev.inspection.naming import dtype_name
from etdev.program import model as m
from etdev.program.analysis.effects import effects, operator_name, tensors
from etdev.program.devices import H2D_COPY, delegate_device, is_device_copy


def buffer_problems(plan: m.ExecutionPlan) -> Iterator[str]:
    """Check that each buffer in the method's table of devices exists, has one entry, and is on a valid device."""
    seen: set[int] = set()
    for entry in plan.non_const_buffer_device:
        label = f"method {plan.name!r}, buffer {entry.buffer_idx}"
        device = Device(entry.device_type, entry.device_index)
        if not 1 <= entry.buffer_idx < len(plan.non_const_buffer_sizes):
            yield (
                f"{label} has a device, but the method has only the buffers 1 to {len(plan.non_const_buffer_sizes) - 1}"
            )
        if entry.buffer_idx in seen:
            yield f"{label} has two entries in the table of devices"
        seen.add(entry.buffer_idx)
        if not _exists(device):
            yield (f"{label} is on device {entry.device_index} of type {device.type.name}, which is not a valid device")
        elif device.is_host:
            yield f"{label} is in the table of buffers on devices, but its device is the host"


def agreement_problems(program: m.Program) -> Iterator[str]:
    """Find buffers for which methods state different devices.

    Methods must agree on the device, because loaders use the same buffers for all methods.
    """
    first: dict[int, tuple[str, Device]] = {}
    for plan in program.execution_plan:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            if not index or not size:
                continue
            device = plan.buffer_device(index)
            name, known = first.setdefault(index, (plan.name, device))
            if known != device:
                yield f"buffer {index} is on {known} in method {name!r} and on {device} in method {plan.name!r}"


def tensor_problems(plan: m.ExecutionPlan, alignment: int) -> Iterator[str]:
    """Find tensors that are not on the device of their buffer, extend past the buffer's end, or are misaligned.

    ``alignment`` is the required alignment, in bytes, of tensors on devices. A tensor on the host needs only the
    alignment of its element type.
    """
    devices = {index: plan.buffer_device(index) for index in range(len(plan.non_const_buffer_sizes))}
    for index, tensor in plan.tensors():
        label = f"method {plan.name!r}, value {index}"
        device, place = tensor.device, tensor.allocation_info
        if not _exists(device):
            yield f"{label} is on device {device.index} of type {device.type.name}, which is not a valid device"
        if tensor.is_constant and not device.is_host:
            yield f"{label} is a constant, which the runtime keeps on the host, but its device is {device}"
        if place is None:
            continue
        if place.memory_id not in devices or not place.memory_id:
            yield (
                f"{label} is in buffer {place.memory_id}, but the method has only the buffers 1 to {len(devices) - 1}"
            )
            continue
        there = devices[place.memory_id]
        if device != there:
            yield f"{label} is on {device}, but its buffer {place.memory_id} is on {there}"
        yield from _extent_problems(plan, label, tensor, place)
        if tensor.nbytes and place.memory_offset % (need := _alignment(tensor, there, alignment)):
            yield (
                f"{label} begins at {place.memory_offset} of buffer {place.memory_id} on {there}, "
                f"which is not a multiple of {need}"
            )


def _extent_problems(plan: m.ExecutionPlan, label: str, tensor: m.Tensor, place: m.AllocationDetails) -> Iterator[str]:
    unbounded = tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND
    size, room = 0 if unbounded else tensor.nbytes, plan.non_const_buffer_sizes[place.memory_id]
    if place.memory_offset < 0 or place.memory_offset + size > room:
        yield (
            f"{label} has {size:,} bytes at {place.memory_offset:,} of buffer {place.memory_id}, which has only "
            f"{room:,} bytes"
        )


def _alignment(tensor: m.Tensor, device: Device, alignment: int) -> int:
    return tensor.scalar_type.itemsize if device.is_host else max(alignment, tensor.scalar_type.itemsize)


def _exists(device: Device) -> bool:
    return 0 <= device.index <= (0 if device.is_host else MAX_INDEX)


def instruction_problems(plan: m.ExecutionPlan) -> Iterator[str]:
    """Find instructions with arguments on a device that the instruction cannot access."""
    devices = {index: tensor.device for index, tensor in plan.tensors()}
    delegates = tuple(_device_of(delegate) for delegate in plan.delegates)
    for index, found in enumerate(delegates):
        if isinstance(found, str):
            yield f"method {plan.name!r}, delegate {index}: {found}"
    for position, call in enumerate(plan.instructions):
        for problem in _call_problems(plan, call, devices, delegates):
            yield f"method {plan.name!r}, instruction {position} ({_name(plan, call)}): {problem}"


def _device_of(delegate: m.BackendDelegate) -> Device | str:
    """Return the device that a delegate's arguments must be on, or the reason why the device is unknown."""
    try:
        return delegate_device(delegate)
    except DeviceNameError as error:
        return f"{error.message}; {error.hint}"


def _name(plan: m.ExecutionPlan, call: m.Instruction) -> str:
    match call:
        case m.KernelCall():
            return operator_name(plan.operators[call.op_index])
        case m.DelegateCall():
            return plan.delegates[call.delegate_index].id
        case m.MoveCall():
            return "move"
        case m.JumpFalseCall():
            return "jump"
        case m.FreeCall():
            return "free"


def _call_problems(
    plan: m.ExecutionPlan, call: m.Instruction, devices: Mapping[int, Device], delegates: tuple[Device | str, ...]
) -> Iterator[str]:
    match call:
        case m.KernelCall():
            operator = plan.operators[call.op_index]
            if is_device_copy(operator):
                yield from _copy_problems(plan, call, devices, to_device=operator.name == H2D_COPY)
            else:
                yield from _kernel_problems(plan, call, devices)
        case m.DelegateCall():
            device = delegates[call.delegate_index]
            if isinstance(device, Device):
                yield from _delegate_problems(plan, call, devices, device)
            else:
                yield "the device of its arguments is unknown"
        case m.MoveCall():
            one, other = devices.get(call.move_from), devices.get(call.move_to)
            if one != other and one is not None and other is not None:
                yield (
                    f"it moves value {call.move_from} on {one} to value {call.move_to} on {other}; a move copies "
                    "only the address, which is not valid on another device"
                )
        case m.JumpFalseCall():
            if not devices.get(call.cond_value_index, HOST).is_host:
                yield f"the condition, value {call.cond_value_index}, is on {devices[call.cond_value_index]}"


def _copy_problems(
    plan: m.ExecutionPlan, call: m.KernelCall, devices: Mapping[int, Device], *, to_device: bool
) -> Iterator[str]:
    if len(call.args) != 3 or call.args[1] != call.args[2] or not all(index in devices for index in call.args):
        yield "its arguments must be a tensor, an output and the same output again"
        return
    origin, to = call.args[:2]
    host, other = (origin, to) if to_device else (to, origin)
    if not devices[host].is_host:
        yield f"value {host} must be on the host, but is on {devices[host]}"
    if devices[other].is_host:
        yield f"value {other} must be on a device, but is on the host"
    one, two = plan.values[origin], plan.values[to]
    assert isinstance(one, m.Tensor)
    assert isinstance(two, m.Tensor)
    if one.scalar_type != two.scalar_type:
        yield (
            f"value {origin} is {dtype_name(one.scalar_type)}, "
            f"but value {to}, its copy, is {dtype_name(two.scalar_type)}"
        )
    elif one.nbytes != two.nbytes and not _unbounded(one, two):
        yield f"value {origin} has {one.nbytes:,} bytes, but value {to}, its copy, has {two.nbytes:,}"


def _unbounded(*found: m.Tensor) -> bool:
    return any(tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND for tensor in found)


def _kernel_problems(plan: m.ExecutionPlan, call: m.KernelCall, devices: Mapping[int, Device]) -> Iterator[str]:
    """Find arguments of a kernel call that are not on the host, although kernels run on the host.

    An argument may be on any device if the operator reads only its sizes. A view must be on the device of its base.
    """
    used = tensors(plan, call.args)
    if all(devices[index].is_host for index in used):
        return
    found = effects(plan, call)
    if found.view is not None:
        of, out = found.view
        if devices[of] != devices[out]:
            yield f"value {out} on {devices[out]} is a view of value {of} on {devices[of]}"
        return
    touched = {*found.reads, *found.writes, *found.updates, *found.fills}
    for index in used:
        if index in touched and not devices[index].is_host:
            place = "its output" if index not in found.reads else "its argument"
            yield f"{place}, value {index}, is on {devices[index]}, but the kernel runs on the host: a copy is missing"


def _delegate_problems(
    plan: m.ExecutionPlan, call: m.DelegateCall, devices: Mapping[int, Device], device: Device
) -> Iterator[str]:
    for number, index in enumerate(call.args):
        for value in tensors(plan, (index,)):
            if devices[value] == device:
                continue
            tensor = plan.values[value]
            assert isinstance(tensor, m.Tensor)
            kind = "a constant on the host" if tensor.is_constant else f"on {devices[value]}"
            yield f"argument {number}, value {value}, is {kind}, but the delegate runs on {device}: a copy is missing"
