"""Programs written by hand whose delegates run on devices."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from etdev.devices import Device, parse_device
from etdev.program import Blob, Program, write
from etdev.program import model as m
from program.hand import tensor
from support.files import ADD, SIN, method, program, sin

H2D, D2H = m.Operator("et_copy::_h2d_copy", "out"), m.Operator("et_copy::_d2h_copy", "out")
REFERENCE = "EtdevReferenceBackend"


def nested() -> bytes:
    """The file of a delegate that computes ``sin``, in memory that its caller brings."""
    return file_of(program(method([tensor(4), tensor(4)], [sin(0, 1)], sizes=())))


def file_of(made: Program) -> bytes:
    """A program as a file has it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.pte"
        write(made, file)
        return file.read_bytes()


def on(device: str, *sizes: int, at: int | None = None, buffer: int = 2, **more: object) -> m.Tensor:
    """A float tensor on a device, planned unless ``at`` is None."""
    found = parse_device(device)
    extra = m.ExtraTensorInfo(device_type=found.type, device_index=found.index)
    return tensor(*sizes, at=at, buffer=buffer, extra_tensor_info=extra, **more)


def delegate(target: bytes | None, *, name: str = REFERENCE) -> m.BackendDelegate:
    """A delegate whose blob is segment 1."""
    specs = () if target is None else (m.CompileSpec("target_device", target),)
    return m.BackendDelegate(name, m.BackendDelegateDataReference(m.DataLocation.SEGMENT, 1), specs)


def entries(*devices: str) -> tuple[m.NonConstBufferDevice, ...]:
    """Buffers from 2 on, one on each device."""
    found: Sequence[Device] = [parse_device(device) for device in devices]
    return tuple(m.NonConstBufferDevice(2 + index, item.type, item.index) for index, item in enumerate(found))


def across(*plans: m.ExecutionPlan) -> Program:
    """A program whose delegates all compute ``sin``."""
    segments = (m.Segment(0, Blob()), m.Segment(128, Blob(nested())))
    return program(*plans, segments=segments)


def two_devices(kind: str = "cuda") -> Program:
    """``sin`` on ``cuda:0``, ``sin`` on the host, ``sin`` on ``cuda:1``, float32 [4] -> float32 [4].

    Values: 0 x, 1 on cuda:0, 2 its sine, 3 on the host, 4 its sine, 5 on cuda:1, 6 its sine, 7 the output. The devices
    are of the type ``kind``.
    """
    return across(two_devices_plan(kind=kind))


def two_devices_plan(name: str = "forward", kind: str = "cuda") -> m.ExecutionPlan:
    """The method of :func:`two_devices`."""
    first, second = f"{kind}:0", f"{kind}:1"
    values = [
        tensor(4, at=0),
        on(first, 4, at=0),
        on(first, 4, at=16),
        tensor(4, at=16),
        tensor(4, at=32),
        on(second, 4, at=0, buffer=3),
        on(second, 4, at=16, buffer=3),
        tensor(4, at=48),
    ]
    calls = [
        m.KernelCall(0, (0, 1, 1)),
        m.DelegateCall(0, (1, 2)),
        m.KernelCall(1, (2, 3, 3)),
        m.KernelCall(2, (3, 4, 4)),
        m.KernelCall(0, (4, 5, 5)),
        m.DelegateCall(1, (5, 6)),
        m.KernelCall(1, (6, 7, 7)),
    ]
    return method(
        values,
        calls,
        name=name,
        operators=(H2D, D2H, SIN, ADD),
        delegates=(delegate(first.encode()), delegate(second.encode())),
        non_const_buffer_device=entries(first, second),
    )
