"""What ExecuTorch asks of its own pass that places devices, asked of etdev: lowered models, linked (B1, B2, B5, B8).

Each model is lowered once and emitted twice: etdev links one, and ExecuTorch's pass puts copies into the other, which
counts what etdev must not exceed. What etdev makes computes what eager PyTorch does, on simulated devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from etdev.devices import parse_device
from etdev.kernel_trials.custom_ops import resolve_ops
from etdev.linker import link_foreign
from etdev.pipeline.project import Project
from etdev.pipeline.project.places import object_place
from etdev.pipeline.project.progress import Silent, StageClock
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.emit import emit_object
from etdev.pipeline.stages.link.linking import link_program
from etdev.pipeline.stages.lower import lower_model
from etdev.pipeline.stages.models import Models
from etdev.program import Program, parse
from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.devices import D2H_COPY, H2D_COPY
from etdev.runtime.device_map import parse_device_map
from etdev.runtime.replay import ReplayRuntime

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs the extra `build`")
pytest.importorskip("executorch", reason="needs the extra `build`")

MODEL = """
    import torch
    from torch import nn

    class Add(nn.Module):
        def forward(self, x, y):
            return x + y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.three, self.four = Add(), Add(), Add(), Add()

        def forward(self, {inputs}):
            one, two, three, four = self.one, self.two, self.three, self.four
            {body}
"""
MODULES = ("one", "two", "three", "four")


@dataclass(frozen=True)
class Case:
    """Sums, each a delegate of its own."""

    body: str
    """Of ``forward``, on one line; its inputs are those of ``a``, ``b`` and ``c`` that it uses."""
    devices: tuple[str | None, ...]
    """Of each sum, in order; None to name none."""
    copies: str = ""
    """``cuda:0 <- a`` brings input a there, ``cpu <- 1`` what the first delegate made here; in any order."""
    theirs: tuple[int, int] | str = (0, 0)
    """How often ExecuTorch copies to devices and back, or why it refuses."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Those that are left on their device, with it."""
    outputs: tuple[str, ...] = ()
    """Where all outputs are left; empty for the host."""

    @property
    def names(self) -> list[str]:
        """Of all inputs."""
        return [name for name in "abc" if f"({name}" in self.body or f", {name})" in self.body]

    def config(self) -> str:
        """Of a project with the target ``t``."""
        shapes = ", ".join(f'{{ name = "{name}", dtype = "float32", shape = [2, 2] }}' for name in self.names)
        lines = ["version = 1", '[model]\nentry = "model:Net"', f"[methods.forward]\ninputs = [{shapes}]"]
        for name, device in zip(MODULES, self.devices, strict=False):
            lines.append(f'[[targets.t.partitioners]]\nbackend = "reference"\noptions.modules = ["{name}"]')
            lines += [f'device = "{device}"'] if device else []
        owners = ", ".join(f'{name} = "device"' for name in self.inputs)
        lines.append(f"[targets.t.io.forward]\ninputs = {{ {owners} }}")
        lines.append(f'outputs = "{"device" if self.outputs else "host"}"')
        return "\n".join(lines) + "\n"


SUM = "return one(a, b)"
CHAIN = "return two(one(a, b), c)"
CASES = {
    "each input and each output crosses": Case(SUM, ("cuda:0",), "cuda:0 <- a, cuda:0 <- b, cpu <- 1", theirs=(2, 1)),
    "the index of the device goes everywhere": Case(
        SUM, ("cuda:1",), "cuda:1 <- a, cuda:1 <- b, cpu <- 1", theirs=(2, 1)
    ),
    "nothing crosses without a device": Case(SUM, (None,)),
    "nothing crosses to the host": Case(SUM, ("cpu",)),
    "what goes on on its device stays there": Case(
        CHAIN, ("cuda:0", "cuda:0"), "cuda:0 <- a, cuda:0 <- b, cuda:0 <- c, cpu <- 2", theirs=(3, 1)
    ),
    "what goes on on another device crosses through the host": Case(
        CHAIN,
        ("cuda:0", "cuda:1"),
        "cuda:0 <- a, cuda:0 <- b, cpu <- 1, cuda:1 <- 1, cuda:1 <- c, cpu <- 2",
        theirs=(4, 2),
    ),
    "several delegates of its device": Case(
        "t = one(a, b); return four(two(t, a), three(t, b))",
        ("cuda:0",) * 4,
        "cuda:0 <- a, cuda:0 <- b, cpu <- 4",
        theirs=(4, 1),
    ),
    "a delegate of its device and the host": Case(
        "t = one(a, b); return two(t, a), t.relu()",
        ("cuda:0", "cuda:0"),
        "cuda:0 <- a, cuda:0 <- b, cpu <- 1, cpu <- 2",
        theirs=(3, 2),
    ),
    "delegates of its device and of another": Case(
        "t = one(a, b); return two(t, a), three(t, b)",
        ("cuda:0", "cuda:0", "cuda:1"),
        "cuda:0 <- a, cuda:0 <- b, cpu <- 1, cuda:1 <- 1, cuda:1 <- b, cpu <- 2, cpu <- 3",
        theirs=(5, 3),
    ),
    "inputs left on the device": Case(
        SUM, ("cuda:0",), "cpu <- 1", theirs=(0, 1), inputs={"a": "cuda:0", "b": "cuda:0"}
    ),
    "outputs left on the device": Case(
        SUM, ("cuda:1",), "cuda:1 <- a, cuda:1 <- b", theirs=(2, 0), outputs=("cuda:1",)
    ),
    "inputs and outputs left on the device": Case(
        SUM, ("cuda:0",), inputs={"a": "cuda:0", "b": "cuda:0"}, outputs=("cuda:0",)
    ),
    "an input left on the device beside what the host computed": Case(
        "return one(a.sin(), b)", ("cuda:0",), "cuda:0 <- sin, cpu <- 1", theirs=(1, 1), inputs={"b": "cuda:0"}
    ),
    "an input for several delegates left on their device": Case(
        "return one(a, b), two(a, c)",
        ("cuda:0", "cuda:0"),
        "cpu <- 1, cpu <- 2",
        theirs="exactly one user",
        inputs=dict.fromkeys("abc", "cuda:0"),
    ),
    "an input for the host too left on the device": Case(
        "return one(a, b), a.relu()",
        ("cuda:0",),
        "cpu <- a, cpu <- 1",
        theirs="exactly one user",
        inputs={"a": "cuda:0", "b": "cuda:0"},
    ),
    "an input for two devices left on the first": Case(
        "return two(a, one(a, b))",
        ("cuda:0", "cuda:1"),
        "cpu <- a, cuda:1 <- a, cpu <- 1, cuda:1 <- 1, cpu <- 2",
        theirs="exactly one user",
        inputs={"a": "cuda:0", "b": "cuda:0"},
    ),
    "outputs left on their devices, of which one goes on": Case(
        "t = one(a, b); return t, two(t, c)",
        ("cuda:0", "cuda:1"),
        "cuda:0 <- a, cuda:0 <- b, cpu <- 1, cuda:1 <- 1, cuda:1 <- c",
        theirs=(4, 1),
        outputs=("cuda:0", "cuda:1"),
    ),
}


@dataclass(frozen=True)
class Built:
    """A case in both forms."""

    ours: Program
    theirs: Any
    """The lowered model as it was before etdev emitted it."""
    eager: Callable[..., Any]


def build(project: Project) -> Built:
    """Up to the link."""
    with quiet_libraries(), UserCode() as user:
        _, exported = Models(project, user).prepare("t", StageClock("t", Silent()))
        lowered = lower_model(project, exported, "t")
        theirs = deepcopy(lowered.manager)
        objects = emit_object(project, lowered, exported, "t", object_place(project, "t"))
        made = link_program(project, "t", user, objects, exported.signatures, resolve_ops(project, "t", user))
    return Built(made.linked.program, theirs, exported.eager["forward"])


@dataclass(frozen=True)
class Trace:
    """What a method without branches does, by the names that a :class:`Case` has for its tensors."""

    copies: list[str]
    delegates: list[str]
    """Device of each call, in order."""
    outputs: list[str]
    """Name and device of each."""


def trace(plan: m.ExecutionPlan, names: list[str]) -> Trace:
    """Follow every value. What is not where an instruction looks for it is an error."""
    tensors = dict(plan.tensors())
    known = dict(zip(plan.inputs, names, strict=True))
    copies, delegates = [], []
    for call in (call for chain in plan.chains for call in chain.instructions):
        if isinstance(call, m.DelegateCall):
            *sources, written = call.args
            found = {str(tensors[value].device) for value in call.args}
            assert known.keys() >= set(sources)
            assert len(found) == 1
            delegates += found
            known[written] = str(len(delegates))
            continue
        assert isinstance(call, m.KernelCall)
        operator = plan.operators[call.op_index].name
        read, written = call.args[0], call.args[-1]
        ends = str(tensors[read].device), str(tensors[written].device)
        if operator in (H2D_COPY, D2H_COPY):
            assert ends.index("cpu") == (operator == D2H_COPY)
            copies.append(f"{ends[1]} <- {known[read]}")
            known[written] = known[read]
        else:
            assert read in known
            assert ends == ("cpu", "cpu")
            known[written] = operator.removeprefix("aten::")
    return Trace(copies, delegates, [f"{known[value]} on {tensors[value].device}" for value in plan.outputs])


def count_theirs(case: Case, built: Built) -> tuple[int, int]:
    """How often ExecuTorch's program copies to devices and back."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig

    left = PropagateDeviceConfig(
        skip_h2d_for_method_inputs=bool(case.inputs), skip_d2h_for_method_outputs=bool(case.outputs)
    )
    with quiet_libraries():
        emitted = built.theirs.to_executorch(ExecutorchBackendConfig(propagate_device_config=left))
    plan = parse(Blob(bytes(emitted.buffer))).method("forward")
    calls = [call for chain in plan.chains for call in chain.instructions if isinstance(call, m.KernelCall)]
    operators = [plan.operators[call.op_index].name for call in calls]
    return operators.count(H2D_COPY), operators.count(D2H_COPY)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.sampled(4)
def test_a_tensor_crosses_where_it_has_to_and_once(case: Case, project: Callable[..., Project]) -> None:
    body = MODEL.format(inputs=", ".join(case.names), body=case.body)
    built = build(project(case.config(), model=body))
    plan = built.ours.method("forward")

    found = trace(plan, case.names)

    assert sorted(found.copies) == sorted(filter(None, case.copies.split(", ")))
    assert sorted(found.delegates) == sorted(device or "cpu" for device in case.devices)
    check_ends(case, plan)
    check_buffers(plan)
    check_answers(built, len(case.names))
    there = sum(not copy.startswith("cpu") for copy in found.copies)
    if isinstance(case.theirs, str):
        with pytest.raises(RuntimeError, match=case.theirs):
            count_theirs(case, built)
    else:
        assert count_theirs(case, built) == case.theirs
        assert (there, len(found.copies) - there) <= case.theirs


def check_ends(case: Case, plan: m.ExecutionPlan) -> None:
    """Inputs and outputs are where the case has them; what is left on a device is not planned."""
    outputs = case.outputs or ("cpu",) * len(plan.outputs)
    wanted = [*(case.inputs.get(name, "cpu") for name in case.names), *outputs]
    ends = [plan.values[value] for value in (*plan.inputs, *plan.outputs)]
    for device, tensor in zip(wanted, ends, strict=True):
        assert isinstance(tensor, m.Tensor)
        assert tensor.device == parse_device(device)
        assert (tensor.allocation_info is None) == (device != "cpu")


def check_buffers(plan: m.ExecutionPlan) -> None:
    """Each planned tensor lies in a buffer of its own device; without devices the file has no word of them."""
    planned = [tensor for _, tensor in plan.tensors() if tensor.allocation_info is not None]
    for tensor in planned:
        assert tensor.allocation_info is not None
        assert plan.buffer_device(tensor.allocation_info.memory_id) == tensor.device
    devices = {tensor.device for tensor in planned if not tensor.device.is_host}
    assert [entry.device_index for entry in plan.non_const_buffer_device] == sorted(device.index for device in devices)
    if all(tensor.device.is_host for _, tensor in plan.tensors()):
        assert all(tensor.extra_tensor_info is None for _, tensor in plan.tensors())


def check_answers(built: Built, count: int) -> None:
    """Two calls, on simulated devices."""
    with ReplayRuntime(parse_device_map("cuda:0=sim,cuda:1=sim")) as runtime:
        runtime.load(built.ours)
        for seed in range(2):
            generator = torch.Generator().manual_seed(seed)
            inputs = tuple(torch.randn(2, 2, generator=generator) for _ in range(count))
            wanted = built.eager(*inputs)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            torch.testing.assert_close(runtime.call("forward", inputs), wanted)


IN_A_BRANCH = """
version = 1
model.entry = "model:Net"
[methods.forward]
inputs = [{ name = "a", dtype = "float32", shape = [2, 2] }, { name = "b", dtype = "float32", shape = [2, 2] }]
[[targets.t.partitioners]]
backend = "reference"
device = "cuda:1"
options.ops = ["mul"]
"""


def arguments(plan: m.ExecutionPlan) -> list[set[str]]:
    """Devices of what each delegate call is given, in order."""
    calls = [call for chain in plan.chains for call in chain.instructions if isinstance(call, m.DelegateCall)]
    tensors = dict(plan.tensors())
    return [{str(tensors[value].device) for value in call.args} for call in calls]


@pytest.mark.nightly
def test_a_delegate_in_a_branch_gets_tensors_on_its_device(project: Callable[..., Project]) -> None:
    """ExecuTorch's pass does not look into branches; a file of its own is put right by a relink."""
    body = "return torch.cond(a.sum() > 0, lambda t: t * t, lambda t: t.cos(), (b,))"
    built = build(project(IN_A_BRANCH, model=MODEL.format(inputs="a, b", body=body)))
    with quiet_libraries():
        theirs = parse(Blob(bytes(built.theirs.to_executorch().buffer)))

    assert arguments(theirs.method("forward")) == [{"cpu"}]
    assert arguments(built.ours.method("forward")) == [{"cuda:1"}]
    again = link_foreign(theirs).program
    assert arguments(again.method("forward")) == [{"cuda:1"}]
    for program in (built.ours, again):
        check_answers(replace(built, ours=program), 2)
