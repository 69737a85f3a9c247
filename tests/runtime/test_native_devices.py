"""Rows A1 to A9 in ExecuTorch's own C++ runtime: device programs, with simulated devices that the host cannot touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from etdev.devices import Device, DeviceType
from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.runtime.native import Fault, NativeRuntime
from etdev.runtime.native.devices import NO_DEVICES, simulated_devices
from etdev.runtime.native.measured import PlannedBuffer
from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError
from program.hand import tensor
from support.files import ADD, SIN, cos, method, program, sin
from support.native import native_host, saved
from support.on_devices import D2H, H2D, across, delegate, entries, file_of, on, two_devices

X = torch.linspace(-2, 2, 4)
CUDA0, CUDA1 = Device(DeviceType.CUDA, 0), Device(DeviceType.CUDA, 1)


@pytest.fixture
def native() -> Iterator[NativeRuntime]:
    with NativeRuntime(native_host(), devices=simulated_devices(2)) as runtime:
        yield runtime


def resident() -> Program:
    """``sin`` on ``cuda:0`` of an input that the caller has there, to an output that the caller has there."""
    values = [on("cuda:0", 4), on("cuda:0", 4)]
    plan = method(values, [m.DelegateCall(0, (0, 1))], operators=(), delegates=(delegate(b"cuda:0"),), sizes=())
    return across(plan)


def test_a1_a8_a9_each_buffer_is_on_the_device_that_the_file_names(native: NativeRuntime, tmp_path: Path) -> None:
    """``MethodMeta`` names the devices, ``MemoryManager`` carries them, and the tensors of the run have them."""
    native.load(saved(two_devices(), tmp_path))
    assert native.open("forward").buffers == (
        PlannedBuffer(Device(), 64),
        PlannedBuffer(CUDA0, 32),
        PlannedBuffer(CUDA1, 32),
    )
    torch.testing.assert_close(native.call("forward", (X,)), (X.sin().sin().sin(),))


def test_a2_copies_are_those_of_the_program(native: NativeRuntime, tmp_path: Path) -> None:
    native.load(saved(two_devices(), tmp_path))
    for turn in (1, 2):
        native.call("forward", (X,))
        assert native.called is not None
        for device in (CUDA0, CUDA1):
            found = native.called.devices[device]
            assert (found.copies_in, found.bytes_in, found.copies_out, found.bytes_out) == (turn, 16 * turn) * 2
            assert (found.allocations, found.allocated_bytes) == (1, 32)


def test_a3_a_second_registration_for_a_type_ends_the_process(native: NativeRuntime, tmp_path: Path) -> None:
    native.load(saved(two_devices(), tmp_path))
    with pytest.raises(RuntimeCrashError, match=r"SIGABRT.*Allocator already registered"):
        native.register_twice()


def test_a3_without_an_allocator_the_buffer_and_the_device_are_named(tmp_path: Path) -> None:
    with NativeRuntime(native_host(), devices=NO_DEVICES) as native:
        native.load(saved(two_devices(), tmp_path))
        with pytest.raises(ProgramFailureError, match=r"cannot allocate planned buffer 2 \(32 bytes\) on cuda:0"):
            native.open("forward")


def test_a4_a7_a_file_without_the_table_is_on_the_host(native: NativeRuntime, tmp_path: Path) -> None:
    native.load(saved(program(method([tensor(4, at=0), tensor(4, at=16)], [sin(0, 1)])), tmp_path))
    assert native.open("forward").buffers == (PlannedBuffer(Device(), 32),)


def test_a6_what_was_allocated_is_freed_once(native: NativeRuntime, tmp_path: Path) -> None:
    native.load(saved(two_devices(), tmp_path))
    native.call("forward", (X,))
    native.call("forward", (X,), fresh=True)
    left = native.unload()
    assert {device: (found.allocations, found.live_allocations) for device, found in left.devices.items()} == {
        CUDA0: (2, 0),
        CUDA1: (2, 0),
    }


def test_b8_what_stays_on_a_device_is_the_callers(native: NativeRuntime, tmp_path: Path) -> None:
    native.load(saved(resident(), tmp_path))
    torch.testing.assert_close(native.call("forward", (X,)), (X.sin(),))
    assert native.called is not None
    assert native.called.devices[CUDA0].copies_in == 0


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    with NativeRuntime(native_host(), devices=simulated_devices(1)) as native:
        native.load(saved(two_devices(), tmp_path))
        with pytest.raises(ProgramFailureError, match=r"cannot allocate planned buffer 3 \(32 bytes\) on cuda:1"):
            native.open("forward")


def test_a_full_device_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with NativeRuntime(native_host(), devices=simulated_devices(2, capacity=31)) as native:
        native.load(saved(two_devices(), tmp_path))
        with pytest.raises(ProgramFailureError, match="cuda:0 cannot allocate 32 bytes"):
            native.open("forward")
        assert all(found.live_allocations == 0 for found in native.unload().devices.values())


def without_copy(number: int) -> Program:
    """:func:`two_devices` without one of its instructions."""
    made = two_devices()
    plan = made.execution_plan[0]
    calls = list(plan.chains[0].instructions)
    del calls[number]
    return replace(made, execution_plan=(replace(plan, chains=(m.Chain(tuple(calls)),)),))


@pytest.mark.parametrize(("position", "value", "reads"), [(2, 2, "cuda:0"), (6, 6, "cuda:1")])
def test_a_kernel_that_touches_memory_of_a_device_crashes_and_says_so(
    native: NativeRuntime, tmp_path: Path, position: int, value: int, reads: str
) -> None:
    """``sin`` on the host of a tensor on a device. The second one comes last, after everything else went right."""
    made = two_devices()
    plan = made.execution_plan[0]
    calls = list(plan.chains[0].instructions)
    calls[position] = m.KernelCall(2, (value, 3, 3))
    native.load(saved(replace(made, execution_plan=(replace(plan, chains=(m.Chain(tuple(calls)),)),)), tmp_path))
    at = rf"in method 'forward' at instruction {position} \(aten::sin.out\)"
    said = rf"SIGSEGV {at}: the host accessed {reads}'s memory \(32 bytes\)"
    with pytest.raises(RuntimeCrashError, match=said):
        native.call("forward", (X,))
    # The host counts the instructions of each chain from 0, so the number does not tell which operator it was.
    two = replace(plan, chains=(m.Chain(tuple(calls[:position])), m.Chain(tuple(calls[position:]))))
    native.load(saved(replace(made, execution_plan=(two,)), tmp_path))
    with pytest.raises(RuntimeCrashError, match=r"at instruction 0: the host accessed"):
        native.call("forward", (X,))
    native.load(saved(two_devices(), tmp_path))
    torch.testing.assert_close(native.call("forward", (X,)), (X.sin().sin().sin(),))


@pytest.mark.parametrize("missing", [0, 2, 4, 6])
def test_without_one_of_its_copies_a_program_is_wrong(native: NativeRuntime, tmp_path: Path, missing: int) -> None:
    native.load(saved(without_copy(missing), tmp_path))
    (found,) = native.call("forward", (X,))
    assert not torch.allclose(found, X.sin().sin().sin())


def with_state() -> Program:
    """Two sines on ``cuda:0``, the second of state there that starts at zero."""
    state = on("cuda:0", 4, at=64)
    values = [tensor(4, at=0), on("cuda:0", 4, at=0), on("cuda:0", 4, at=32), state, on("cuda:0", 4, at=48)]
    values += [tensor(4, at=16)]
    calls = [
        m.KernelCall(0, (0, 1, 1)),
        m.DelegateCall(0, (1, 2)),
        m.DelegateCall(1, (3, 4)),
        m.DelegateCall(2, (2, 3)),
        m.KernelCall(1, (4, 5, 5)),
    ]
    plan = method(
        values,
        calls,
        outputs=(5,),
        operators=(H2D, D2H, SIN, ADD),
        delegates=(delegate(b"cuda:0"),) * 3,
        non_const_buffer_device=entries("cuda:0"),
    )
    return across(plan)


def test_state_on_a_device_stays_there(native: NativeRuntime, tmp_path: Path) -> None:
    native.load(saved(with_state(), tmp_path))
    torch.testing.assert_close(native.call("forward", (X,)), (torch.zeros(4),))
    torch.testing.assert_close(native.call("forward", (X,)), (X.sin().sin().sin(),))
    torch.testing.assert_close(native.call("forward", (X,), fresh=True), (torch.zeros(4),))


@pytest.mark.parametrize("target", ["cpu", "cuda:0"])
def test_a_delegate_reads_its_inputs_before_it_writes_an_output_over_them(
    native: NativeRuntime, tmp_path: Path, target: str
) -> None:
    """A plan may do that (``ALIAS_SAFE``), and the delegate computes in the memory of the call."""
    nested = file_of(program(method([tensor(4)] * 3, [cos(0, 1), sin(0, 2)], outputs=(1, 2), sizes=())))
    place = {} if target == "cpu" else {"non_const_buffer_device": entries(target)}
    make = partial(tensor, buffer=1) if target == "cpu" else partial(on, target)
    values = [make(4, at=0), make(4, at=0), make(4, at=16)]
    calls: list[m.Instruction] = [m.DelegateCall(0, (0, 1, 2))]
    if target != "cpu":
        values += [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32)]
        calls = [m.KernelCall(0, (3, 0, 0)), *calls, m.KernelCall(1, (1, 4, 4)), m.KernelCall(1, (2, 5, 5))]
    plan = method(
        values,
        calls,
        inputs=(0,) if target == "cpu" else (3,),
        outputs=(1, 2) if target == "cpu" else (4, 5),
        operators=(H2D, D2H),
        delegates=(delegate(target.encode()),),
        **place,
    )
    made = program(plan, segments=(m.Segment(0, Blob()), m.Segment(128, Blob(nested))))
    native.load(saved(made, tmp_path))
    torch.testing.assert_close(native.call("forward", (X,)), (X.cos(), X.sin()))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "two devices": two_devices,
    "state": with_state,
    "caller's": resident,
}


def operations(native: NativeRuntime, operation: str) -> int:
    """How often a device was asked to do something since the program was loaded."""
    found = native.called.devices.values() if native.called else ()
    field = {"allocate": "allocations", "copy_host_to_device": "copies_in", "copy_device_to_host": "copies_out"}
    return sum(getattr(counts, field[operation]) for counts in found)


@pytest.mark.parametrize("operation", ["allocate", "copy_host_to_device", "copy_device_to_host"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_failure_leaves_an_allocation(native: NativeRuntime, tmp_path: Path, name: str, operation: str) -> None:
    """A9: operation n fails, at load or in a call, for every n. It is an error each time, and everything is freed."""
    file = saved(PROGRAMS[name](), tmp_path)

    def once() -> None:
        native.open("forward")
        for _ in range(2):
            native.call("forward", (X,))

    native.load(file)
    once()
    count = operations(native, operation)
    assert count or name == "caller's"
    for nth in range(1, count + 1):
        native.load(file)
        native.fail([Fault(operation, nth)])  # type: ignore[arg-type]
        with pytest.raises(ProgramFailureError) as caught:
            once()
        assert not isinstance(caught.value, RuntimeCrashError), caught.value
        assert "cuda:" in str(caught.value)
        left = native.unload()
        assert all(found.live_allocations == 0 for found in left.devices.values()), f"{operation} {nth}"
