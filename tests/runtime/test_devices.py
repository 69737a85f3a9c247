"""Programs on simulated devices: who may touch what (A1), where buffers are (A9), what failures leave: nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from etdev.devices import Device, DeviceType
from etdev.errors import EtdevError, UsageError
from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.runtime.allocator import Registry
from etdev.runtime.device_map import parse_device_map
from etdev.runtime.errors import PlannedBufferError, RunError
from etdev.runtime.host import HostAllocator
from etdev.runtime.memory import DeviceMemoryBuffer, HierarchicalAllocator, MemoryManager
from etdev.runtime.method import load_method, load_program
from etdev.runtime.replay import ReplayRuntime
from etdev.runtime.simulated import Fault, Operation, SimulatedDevice
from etdev.runtime.stock import ProgramFailureError
from etdev.runtime.tensors import DeviceTensor
from program.hand import tensor
from support.files import ADD, SIN, method, program
from support.on_devices import D2H, H2D, across, delegate, entries, file_of, on, two_devices

X = torch.linspace(-2, 2, 4)
CUDA0, CUDA1 = Device(DeviceType.CUDA, 0), Device(DeviceType.CUDA, 1)


def simulated(*faults: Fault, capacity: int = 1 << 20) -> tuple[SimulatedDevice, Registry]:
    """Two devices, and a registry with them and the host."""
    device = SimulatedDevice(count=2, capacity=capacity, faults=faults)
    return device, Registry(HostAllocator(), device)


def with_calls(made: Program, calls: Sequence[m.Instruction]) -> Program:
    return with_plan(made, chains=(m.Chain(tuple(calls)),))


def with_plan(made: Program, **changes: object) -> Program:
    return replace(made, execution_plan=(replace(made.execution_plan[0], **changes),))  # type: ignore[arg-type]


def test_a_program_runs_on_its_devices_and_copies_what_it_says() -> None:
    device, registry = simulated()
    with load_program(two_devices(), registry=registry) as loaded:
        assert sorted((item.index, item.size) for item in device.live()) == [(0, 32), (1, 32)]
        (found,) = loaded.execute("forward", (X,))
    torch.testing.assert_close(found, X.sin().sin().sin())
    counters = device.counters
    assert (counters.host_to_device_bytes, counters.device_to_host_bytes) == (32, 32)
    assert counters.live_allocations == 0


def test_the_bytes_of_the_host_do_not_hold_what_a_device_computes() -> None:
    _, registry = simulated()
    made = two_devices()
    with load_method(made, registry=registry) as loaded:
        assert loaded.execute((X,))
        assert [loaded.meta.memory_planned_buffer_device(i) for i in range(3)] == [Device(), CUDA0, CUDA1]
        devices = {key[0] for key in loaded._memories}
    assert devices == {Device(), CUDA0, CUDA1}


ADD_HERE = m.KernelCall(2, (2, 4, 4))  # sin of what is on cuda:0, on the host
WRONG: dict[str, tuple[Callable[[], Program], str]] = {
    "a kernel of the host reads what is on a device": (
        lambda: with_calls(two_devices(), [m.KernelCall(0, (0, 1, 1)), m.DelegateCall(0, (1, 2)), ADD_HERE]),
        r"instruction 2 \(aten::sin.out\): the instruction runs on cpu, but reads value 2 .* on cuda:0",
    ),
    "a kernel of the host writes to a device": (
        lambda: with_calls(two_devices(), [m.KernelCall(2, (0, 1, 1))]),
        r"instruction 0 \(aten::sin.out\): the instruction runs on cpu, but writes value 1 .* on cuda:0",
    ),
    "a delegate gets what is on the host": (
        lambda: with_calls(two_devices(), [m.DelegateCall(0, (0, 2))]),
        "delegate runs on cuda:0, but its argument, value 0, is on cpu",
    ),
    "a delegate gets what is on another device": (
        lambda: with_calls(two_devices(), [m.KernelCall(0, (0, 5, 5)), m.DelegateCall(0, (5, 2))]),
        "delegate runs on cuda:0, but its argument, value 5, is on cuda:1",
    ),
    "a copy to a device begins on a device": (
        lambda: with_calls(two_devices(), [m.KernelCall(0, (0, 1, 1)), m.KernelCall(0, (1, 5, 5))]),
        "a host-to-device copy cannot copy value 1 ",
    ),
    "a copy to the host ends on a device": (
        lambda: with_calls(two_devices(), [m.KernelCall(1, (0, 1, 1))]),
        "a device-to-host copy cannot copy value 0 ",
    ),
    "a tensor is elsewhere than its buffer": (
        lambda: with_plan(two_devices(), non_const_buffer_device=entries("cuda:1", "cuda:0")),
        "is declared on cuda:0, but is in planned buffer 2 on cuda:1",
    ),
    "a condition is on a device": (
        lambda: with_calls(two_devices(), [m.JumpFalseCall(1, 1)]),
        r"instruction 0 \(JumpFalseCall\): the instruction runs on cpu, but reads value 1",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_on_the_wrong_device_is_an_error_that_names_it(wrong: str) -> None:
    make, words = WRONG[wrong]
    device, registry = simulated()
    with pytest.raises(RunError, match=words), load_method(make(), registry=registry) as loaded:
        loaded.execute((X,))
    assert device.counters.live_allocations == 0


@pytest.mark.parametrize("missing", [0, 2, 4, 6])
def test_without_one_of_its_copies_a_program_is_wrong(missing: int) -> None:
    made = two_devices()
    calls = list(made.execution_plan[0].chains[0].instructions)
    del calls[missing]
    _, registry = simulated()
    with load_method(with_calls(made, calls), registry=registry) as loaded:
        (found,) = loaded.execute((X,))
    assert not torch.allclose(found, X.sin().sin().sin())  # type: ignore[arg-type]


def resident() -> Program:
    """``sin`` on ``cuda:0`` of an input that the caller has there, to an output that the caller has there."""
    values = [on("cuda:0", 4), on("cuda:0", 4)]
    plan = method(values, [m.DelegateCall(0, (0, 1))], operators=(), delegates=(delegate(b"cuda:0"),), sizes=())
    return across(plan)


def test_what_stays_on_a_device_is_the_callers() -> None:
    device, registry = simulated()
    with load_method(resident(), registry=registry) as loaded, DeviceTensor.upload(X, CUDA0, registry=registry) as x:
        (first,) = loaded.execute((x,))
        (second,) = loaded.execute((x,))
        assert isinstance(first, DeviceTensor)
        assert isinstance(second, DeviceTensor)
        assert first.device == CUDA0
        assert first.address != second.address
        torch.testing.assert_close(first.to_host(), X.sin())
        first.close()
        torch.testing.assert_close(second.to_host(), X.sin())
        second.close()
        with pytest.raises(UsageError, match="must be on cuda:0, but is a Tensor on the host"):
            loaded.execute((X,))
    assert device.counters.live_allocations == 0


def test_replay_takes_and_gives_tensors_of_the_host() -> None:
    device, registry = simulated()
    with ReplayRuntime(registry=registry) as runtime:
        assert runtime.load(resident()) == ("forward",)
        for _ in range(2):
            torch.testing.assert_close(runtime.call("forward", (X,), fresh=True), (X.sin(),))
        runtime.load(with_calls(two_devices(), [ADD_HERE]))
        with pytest.raises(ProgramFailureError, match="on cuda:0"):
            runtime.call("forward", (X,))
    assert device.counters.live_allocations == 0


def test_a_device_map_says_what_the_devices_are() -> None:
    with load_program(two_devices(), parse_device_map("cuda:0=sim,cuda:1=sim")) as loaded:
        torch.testing.assert_close(loaded.execute("forward", (X,)), (X.sin().sin().sin(),))


def test_a_device_that_nothing_stands_for_is_named() -> None:
    with pytest.raises(PlannedBufferError, match=r"planned buffer 2 on cuda:0.*there is no allocator for CUDA"):
        load_program(two_devices(), registry=Registry(HostAllocator()))


def stateful() -> Program:
    """Two delegates on ``cuda:0``, state there with an initial value, and an output that the caller has there.

    Values: 0 x on the host, 1 on the device, 2 its sine, 3 state, 4 the caller's sine of it.
    """
    state = replace(on("cuda:0", 4, at=64), data_buffer_idx=1)
    values = [tensor(4, at=0), on("cuda:0", 4, at=0), on("cuda:0", 4, at=32), state, on("cuda:0", 4), tensor(4, at=16)]
    calls = [
        m.KernelCall(0, (0, 1, 1)),
        m.DelegateCall(0, (1, 2)),
        m.DelegateCall(1, (3, 4)),
        m.DelegateCall(2, (2, 3)),
        m.KernelCall(1, (2, 5, 5)),
    ]
    plan = method(
        values,
        calls,
        outputs=(4, 5),
        operators=(H2D, D2H, SIN, ADD),
        delegates=(delegate(b"cuda:0"),) * 3,
        non_const_buffer_device=entries("cuda:0"),
    )
    made = across(plan)
    data = Blob(torch.full((4,), 0.5).numpy().tobytes())
    end = made.segments[-1].offset + -(-len(made.segments[-1].data) // 128) * 128
    return replace(
        made,
        segments=(*made.segments, m.Segment(end, data)),
        mutable_data_segments=(m.SubsegmentOffsets(2, (0, 0)),),
    )


def test_state_on_a_device_stays_there() -> None:
    device, registry = simulated()
    with ReplayRuntime(registry=registry) as runtime:
        runtime.load(stateful())
        at_load = device.counters.host_to_device_bytes
        assert at_load == 16
        first, second = runtime.call("forward", (X,)), runtime.call("forward", (X,))
        torch.testing.assert_close(first[0], torch.full((4,), 0.5).sin())
        torch.testing.assert_close(second[0], X.sin().sin().sin())
        assert device.counters.host_to_device_bytes - at_load == 2 * 16
        torch.testing.assert_close(runtime.call("forward", (X,), fresh=True)[0], first[0])


def doubled(inputs: bool, outputs: bool) -> bytes:
    """A delegate that gives ``x + n * x`` of a tensor and an integer; its input and output planned or not."""
    values = [tensor(4, at=0 if inputs else None), tensor(4, at=16 if outputs else None), m.Int(2)]
    call = m.KernelCall(0, (0, 0, 2, 1, 1))
    return file_of(program(method(values, [call], inputs=(0, 2), outputs=(1,), sizes=(32,))))


@pytest.mark.parametrize("outputs", [True, False])
@pytest.mark.parametrize("inputs", [True, False])
def test_a_delegate_takes_integers_and_writes_over_its_own_input(inputs: bool, outputs: bool) -> None:
    values = [tensor(4, at=0), on("cuda:0", 4, at=0), m.Int(3), on("cuda:0", 4, at=0), tensor(4, at=16)]
    calls = [m.KernelCall(0, (0, 1, 1)), m.DelegateCall(0, (1, 2, 3)), m.KernelCall(1, (3, 4, 4))]
    plan = method(
        values,
        calls,
        inputs=(0, 2),
        outputs=(4,),
        operators=(H2D, D2H),
        delegates=(delegate(b"cuda:0"),),
        non_const_buffer_device=entries("cuda:0"),
    )
    made = program(plan, segments=(m.Segment(0, Blob()), m.Segment(128, Blob(doubled(inputs, outputs)))))
    device, registry = simulated()
    with load_method(made, registry=registry) as loaded:
        for factor in (3, 5):
            torch.testing.assert_close(loaded.execute((X, factor)), ((1 + factor) * X,))
    assert device.counters.live_allocations == 0


def with_weights() -> Program:
    """:func:`two_devices`, whose delegates add a constant in memory of their own and give the sine of the sum."""
    constant = Blob(torch.full((4,), 0.25).numpy().tobytes())
    values = [tensor(4), replace(tensor(4), data_buffer_idx=1), tensor(4, at=0), tensor(4), m.Int(1)]
    calls = [m.KernelCall(0, (0, 1, 4, 2, 2)), m.KernelCall(1, (2, 3, 3))]
    inner = program(
        method(values, calls, outputs=(3,)),
        segments=(m.Segment(0, constant),),
        constant_segment=m.SubsegmentOffsets(0, (0, 0)),
    )
    return replace(two_devices(), segments=(m.Segment(0, Blob()), m.Segment(128, Blob(file_of(inner)))))


def test_a_delegate_has_memory_and_constants_on_its_device() -> None:
    device, registry = simulated()
    with load_program(with_weights(), registry=registry) as loaded:
        assert [item.index for item in device.live()] == [0, 0, 0, 1, 1, 1]
        (found,) = loaded.execute("forward", (X,))
    torch.testing.assert_close(found, ((X + 0.25).sin().sin() + 0.25).sin())


PROGRAMS: dict[str, Callable[[], Program]] = {
    "two devices": two_devices,
    "state": stateful,
    "caller's": resident,
    "weights": with_weights,
}
OPERATIONS: tuple[Operation, ...] = ("allocate", "copy_host_to_device", "copy_device_to_host", "wrong_device")


def once(made: Program, registry: Registry) -> None:
    """Load, run twice, and close."""
    with ReplayRuntime(registry=registry) as runtime:
        runtime.load(made)
        for _ in range(2):
            runtime.call("forward", (X,))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_failure_leaves_an_allocation(name: str, operation: Operation) -> None:
    """Every operation of a whole life fails once, and says whose memory it was about, where, and how many bytes."""
    made = PROGRAMS[name]()
    device, registry = simulated()
    once(made, registry)
    count = device.operations(operation)
    assert count
    for nth in range(1, count + 1):
        device, registry = simulated(Fault(operation, nth))
        with pytest.raises((EtdevError, ProgramFailureError)) as caught:
            once(made, registry)
        assert device.counters.live_allocations == 0, f"{operation} {nth}"
        said = str(caught.value)
        assert re.search(r"cuda:[01]\b", said), said
        assert re.search(r"\b\d+ bytes\b.*\b\d+ bytes free", said), said
        assert re.search(r"planned buffer \d|in the caller's memory|the constants of method 'forward'", said), said


def test_a_buffer_that_is_not_to_be_had_says_which_where_how_much_and_what_there_is() -> None:
    device, registry = simulated(capacity=40)
    DeviceMemoryBuffer.create(16, DeviceType.CUDA, 1, registry=registry)
    kept = DeviceMemoryBuffer.create(16, DeviceType.CUDA, 1, registry=registry)
    with pytest.raises(PlannedBufferError) as caught:
        load_program(two_devices(), registry=registry)
    error = caught.value
    assert (error.buffer, error.device, error.asked, error.free) == (3, CUDA1, 32, 24)
    assert "planned buffer 3 on cuda:1 needs 32 bytes, 24 bytes free" in str(error)
    kept.close()
    assert device.counters.live_allocations == 0


def test_a_failure_names_the_buffer_whose_initial_value_is_not_copied() -> None:
    device, registry = simulated(Fault("copy_host_to_device"))
    with pytest.raises(
        PlannedBufferError, match=r"value 3 cannot be initialized: planned buffer 2 on cuda:0 needs 80 bytes"
    ):
        load_program(stateful(), registry=registry)
    assert device.counters.live_allocations == 0


def test_a_method_runs_in_memory_that_it_is_given() -> None:
    device, registry = simulated()
    made = two_devices()
    sizes = made.execution_plan[0].non_const_buffer_sizes[1:]
    devices = (Device(), CUDA0, CUDA1)
    buffers = [
        DeviceMemoryBuffer.create(size, where.type, where.index, registry=registry)
        for size, where in zip(sizes, devices, strict=True)
    ]
    spans = [buffer.as_span() for buffer in buffers]
    manager = MemoryManager(HierarchicalAllocator(spans, devices))
    with load_method(made, registry=registry, memory=manager) as loaded:
        torch.testing.assert_close(loaded.execute((X,)), (X.sin().sin().sin(),))
    assert device.counters.live_allocations == 2
    with pytest.raises(RunError, match="must be on cuda:0, but the caller's memory is on cpu"):
        load_method(made, registry=registry, memory=MemoryManager(HierarchicalAllocator(spans)))
    with pytest.raises(RunError, match="does not provide memory of 32 bytes for planned buffer 3"):
        load_method(made, registry=registry, memory=MemoryManager(HierarchicalAllocator(spans[:2], devices[:2])))
    for buffer in buffers:
        buffer.close()
    assert device.counters.live_allocations == 0
