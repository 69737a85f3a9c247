"""What a file says of devices, table by table, and that it says nothing where there are none (A1, A4, A7, B2, B5).

The file is read back from disk, and by the reader of the executorch wheel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import etdev
from etdev.devices import HOST, Device, parse_device
from etdev.pipeline.api import open_project
from etdev.program import model as m
from etdev.program import read, write
from etdev.runtime.device_map import parse_device_map
from etdev.runtime.meta import MethodMeta
from etdev.runtime.replay import ReplayRuntime
from support.projects import LINEAR, LINEAR_CONFIG, write_project
from support.stages import load

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs the extra `build`")
pytest.importorskip("executorch", reason="needs the extra `build`")

CPU, CUDA0, CUDA1 = HOST, parse_device("cuda:0"), parse_device("cuda:1")


# Without devices


PLAIN = (
    LINEAR_CONFIG + '    [targets.cpu]\n    partitioners = [{ backend = "reference", options = { ops = ["relu"] } }]\n'
)
NAMED = PLAIN.replace('"reference",', '"reference", device = "cpu",')
ENDS = '    [targets.cpu.io.forward]\n    inputs = { x = "host" }\n    outputs = "host"\n'
BESIDE = '    [targets.gpu]\n    partitioners = [{ backend = "reference", device = "cuda:1" }]\n'
BUDGET = '    [targets.cpu.budget]\n    memory = { cpu = "1MiB", "cuda:0" = "1MiB" }\n    copies = "1KiB"\n'


def _bytes_of(folder: Path, config: str) -> bytes:
    path = write_project(folder, config, model=LINEAR)
    return etdev.build(path, targets=["cpu"], verify=False, environ={}).path("cpu").read_bytes()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a config that knows no device."""
    return _bytes_of(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(NAMED, id="a partitioner for the host"),
        pytest.param(PLAIN + ENDS, id="inputs and outputs on the host"),
        pytest.param(PLAIN + BESIDE, id="another target on a device"),
        pytest.param(PLAIN + BUDGET, id="a budget for a device"),
    ],
)
@pytest.mark.nightly
def test_a_file_without_devices_does_not_change_by_what_could_be_said_of_them(
    config: str, plain: bytes, tmp_path: Path
) -> None:
    assert _bytes_of(tmp_path, config) == plain


def test_a_file_without_devices_has_no_word_of_them(plain: bytes, tmp_path: Path) -> None:
    (tmp_path / "plain.pte").write_bytes(plain)
    (plan,) = read(tmp_path / "plain.pte").execution_plan
    assert plan.non_const_buffer_device == ()
    assert all(tensor.extra_tensor_info is None for _, tensor in plan.tensors())
    assert [delegate.compile_specs for delegate in plan.delegates] == [()]
    theirs = _theirs(tmp_path / "plain.pte")
    assert theirs.non_const_buffer_device is None


# With two


NET = """
    import torch
    from torch import nn

    class Total(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total.add_(x.sum(0))
            return x * self.total

    class Mix(nn.Module):
        def forward(self, x, y):
            return x * y + x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Total(), Mix()

        def forward(self, x):
            first = self.first(x)
            second = self.second(x, first)
            either = torch.cond(x.mean() > 0, lambda y: y.sin() + 1, lambda y: y.cos(), (second,))
            return either, first.tanh()
"""
"""Of float32 [2, 4]: state on one device, an input for two and the host, a branch with a delegate on one side."""
CONFIG = """
    version = 1
    [project]
    name = "net"
    [model]
    entry = "model:Net"
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [2, 4] }]
    [[targets.gpu.partitioners]]
    backend = "reference"
    device = "cuda:0"
    options = { modules = ["first"], own_state = false }
    [[targets.gpu.partitioners]]
    backend = "reference"
    device = "cuda:1"
    options = { modules = ["second"] }
    [[targets.gpu.partitioners]]
    backend = "reference"
    device = "cuda:1"
    options = { ops = ["sin"] }
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is built from it."""
    path = write_project(tmp_path_factory.mktemp("two"), CONFIG, model=NET)
    return etdev.build(path, verify=False, environ={}).path("gpu")


@pytest.fixture
def plan(file: Path) -> m.ExecutionPlan:
    """Its method, read back."""
    return read(file).method("forward")


def _calls(plan: m.ExecutionPlan) -> Iterator[m.Instruction]:
    return (call for chain in plan.chains for call in chain.instructions)


def _devices(plan: m.ExecutionPlan, values: tuple[int, ...]) -> list[str]:
    return [str(tensor.device) for value in values if isinstance(tensor := plan.values[value], m.Tensor)]


def test_each_buffer_says_how_large_it_is_and_those_on_devices_where_they_are(plan: m.ExecutionPlan) -> None:
    """A4: sparse; the reserved buffer 0 and the host's have no entry."""
    assert plan.non_const_buffer_device == (
        m.NonConstBufferDevice(2, m.DeviceType.CUDA, 0),
        m.NonConstBufferDevice(3, m.DeviceType.CUDA, 1),
    )
    ends = [0, 0, 0, 0]
    for _, tensor in plan.tensors():
        if tensor.allocation_info is not None:
            buffer = tensor.allocation_info.memory_id
            assert plan.buffer_device(buffer) == tensor.device
            ends[buffer] = max(ends[buffer], tensor.allocation_info.memory_offset + tensor.nbytes)
    assert plan.non_const_buffer_sizes == tuple(ends)
    assert ends[0] == 0
    assert min(ends[1:]) > 0


def test_each_tensor_says_where_it_is(plan: m.ExecutionPlan) -> None:
    """A1: type and index; the host's tensors say nothing, unless they have a name or data of their own to tell."""
    found = {Device(info.device_type, info.device_index) for _, tensor in plan.tensors() if (info := _info(tensor))}
    assert found == {CUDA0, CUDA1}
    assert all(tensor.device == CPU for _, tensor in plan.tensors() if _info(tensor) is None)
    assert _devices(plan, (*plan.inputs, *plan.outputs)) == ["cpu"] * 3
    (state,) = [tensor for _, tensor in plan.tensors() if (info := _info(tensor)) and info.fully_qualified_name]
    assert state.extra_tensor_info == m.ExtraTensorInfo(
        fully_qualified_name="first.total", device_type=m.DeviceType.CUDA, device_index=0
    )
    assert (state.sizes, state.data_buffer_idx) == ((4,), 0)


def _info(tensor: m.Tensor) -> m.ExtraTensorInfo | None:
    return tensor.extra_tensor_info


def test_each_delegate_gets_what_it_needs_on_its_device(plan: m.ExecutionPlan) -> None:
    """B2: each input and output; the second one is in a branch."""
    assert [delegate.compile_specs for delegate in plan.delegates] == [
        (m.CompileSpec("target_device", device),) for device in (b"cuda:0", b"cuda:1", b"cuda:1")
    ]
    calls = [call for call in _calls(plan) if isinstance(call, m.DelegateCall)]
    assert [(call.delegate_index, _devices(plan, call.args)) for call in calls] == [
        (0, ["cuda:0"] * 4),  # x, the total, the new total, a product.
        (1, ["cuda:1"] * 3),
        (2, ["cuda:1"] * 2),
    ]
    state = [value for value, tensor in plan.tensors() if (info := _info(tensor)) and info.fully_qualified_name]
    assert state[0] in calls[0].args


def test_each_copy_leads_from_one_side_to_the_other(plan: m.ExecutionPlan) -> None:
    """Once for each tensor and device; the state does not cross. On the host go on: the first product, and on each
    side of the branch what that side starts with or ends with."""
    found = []
    for call in _calls(plan):
        name = plan.operators[call.op_index].name if isinstance(call, m.KernelCall) else ""
        if isinstance(call, m.KernelCall) and name.startswith("et_copy::"):
            source, target, again = call.args
            assert target == again
            one, other = plan.values[source], plan.values[target]
            assert isinstance(one, m.Tensor)
            assert isinstance(other, m.Tensor)
            assert (one.sizes, one.scalar_type, one.dim_order) == (other.sizes, other.scalar_type, other.dim_order)
            assert source not in plan.outputs
            found.append((name.removeprefix("et_copy::"), str(one.device), str(other.device), one.sizes))
    assert sorted(found) == [
        ("_d2h_copy", "cuda:0", "cpu", (2, 4)),
        ("_d2h_copy", "cuda:1", "cpu", (2, 4)),
        ("_d2h_copy", "cuda:1", "cpu", (2, 4)),
        ("_h2d_copy", "cpu", "cuda:0", (2, 4)),
        ("_h2d_copy", "cpu", "cuda:1", (2, 4)),
        ("_h2d_copy", "cpu", "cuda:1", (2, 4)),
    ]


def test_other_operators_and_the_ends_of_a_branch_stay_on_the_host(plan: m.ExecutionPlan) -> None:
    for call in _calls(plan):
        match call:
            case m.KernelCall() if not plan.operators[call.op_index].name.startswith("et_copy::"):
                assert set(_devices(plan, call.args)) <= {"cpu"}
            case m.MoveCall():
                assert _devices(plan, (call.move_from, call.move_to)) == ["cpu"] * 2
            case m.JumpFalseCall():
                assert set(_devices(plan, (call.cond_value_index,))) <= {"cpu"}


def _theirs(file: Path) -> Any:
    """The method as the executorch wheel reads it."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    (plan,) = deserialize_pte_binary(file.read_bytes()).program.execution_plan
    return plan


def test_the_reader_of_executorch_finds_the_same(file: Path, plan: m.ExecutionPlan) -> None:
    theirs = _theirs(file)
    assert [
        (entry.buffer_idx, int(entry.device_type), entry.device_index) for entry in theirs.non_const_buffer_device
    ] == [(entry.buffer_idx, entry.device_type, entry.device_index) for entry in plan.non_const_buffer_device]
    assert tuple(theirs.non_const_buffer_sizes) == plan.non_const_buffer_sizes
    assert len(theirs.values) == len(plan.values)
    for value, tensor in plan.tensors():
        other = theirs.values[value].val
        info = other.extra_tensor_info
        device = (0, 0) if info is None else (int(info.device_type), info.device_index)
        assert device == (tensor.device.type, tensor.device.index)
        assert (None if info is None else info.fully_qualified_name or None) == (
            mine.fully_qualified_name if (mine := _info(tensor)) else None
        )
        assert tuple(other.sizes) == tensor.sizes
        place, ours = other.allocation_info, tensor.allocation_info
        assert (place is None) == (ours is None)
        if ours is not None:
            assert (place.memory_id, place.memory_offset) == (ours.memory_id, ours.memory_offset)
    assert [[(spec.key, bytes(spec.value)) for spec in delegate.compile_specs] for delegate in theirs.delegates] == [
        [(spec.key, spec.value) for spec in delegate.compile_specs] for delegate in plan.delegates
    ]
    assert [
        tuple(call.instr_args.args) for call in theirs.chains[0].instructions if hasattr(call.instr_args, "args")
    ] == [call.args for call in _calls(plan) if isinstance(call, m.KernelCall | m.DelegateCall)]


def test_it_computes_what_the_model_does_call_after_call(file: Path) -> None:
    """On both sides of the branch, with the state that the device keeps."""
    model = load(open_project(file.parents[2] / "etdev.toml", environ={})).module
    generator = torch.Generator().manual_seed(0)
    with ReplayRuntime(parse_device_map("cuda:0=sim,cuda:1=sim")) as runtime, torch.no_grad():
        runtime.load(file)
        for sign in (1, -1, 1):
            x = torch.randn(2, 4, generator=generator).abs() * sign
            torch.testing.assert_close(runtime.call("forward", (x,)), model(x))


# From before there were any


def test_a_file_from_before_the_table_is_on_the_host_everywhere(file: Path, tmp_path: Path) -> None:
    """A7: what an older writer leaves out answers CPU:0."""
    program = read(file)
    (plan,) = program.execution_plan
    values = tuple(
        replace(value, extra_tensor_info=None) if isinstance(value, m.Tensor) else value for value in plan.values
    )
    older = replace(plan, values=values, non_const_buffer_device=())
    write(replace(program, execution_plan=(older,)), tmp_path / "older.pte")

    assert _theirs(tmp_path / "older.pte").non_const_buffer_device is None
    meta, before = (MethodMeta(read(each).method("forward")) for each in (tmp_path / "older.pte", file))
    count = meta.num_memory_planned_buffers()
    assert count == before.num_memory_planned_buffers() == 3
    assert [meta.memory_planned_buffer_device(index) for index in range(count)] == [CPU] * 3
    assert [before.memory_planned_buffer_device(index) for index in range(count)] == [CPU, CUDA0, CUDA1]
    assert {tensor.device for _, tensor in read(tmp_path / "older.pte").method("forward").tensors()} == {CPU}
    assert [meta.input_tensor_meta(0).device, *(meta.output_tensor_meta(index).device for index in range(2))] == [
        CPU
    ] * 3
