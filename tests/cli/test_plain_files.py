"""Files that plain ExecuTorch makes, without etdev, in the commands that take any file.

Each is exported and lowered as ExecuTorch's documentation does it. What `etdev relink` writes computes the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etdev.cli import app
from etdev.pipeline.project.quiet import quiet_libraries
from support.stock import shared_runtime
from support.versions import EXECUTORCH

pytestmark = pytest.mark.integration
pytest.importorskip("executorch", reason="needs the extra `build`")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x)))
        return torch.cat([self.head(y.mean((2, 3))), y.flatten(1)[:, :3]], 1).softmax(-1)


class Branches(nn.Module):
    def forward(self, flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda a: a.sin() * 2, lambda a: a.cos().relu(), (x,)).exp()


class State(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count * 2

    def back(self, x: torch.Tensor) -> torch.Tensor:
        self.count.sub_(x)
        return self.count + x


@dataclass(frozen=True)
class Plain:
    """A file of plain ExecuTorch's."""

    module: Callable[[], nn.Module]
    inputs: tuple[torch.Tensor, ...]
    dims: Mapping[str, Any] | None = None
    xnnpack: bool = False
    methods: tuple[str, ...] = ("forward",)
    settings: Callable[[], Mapping[str, Any]] = dict
    """Of ``ExecutorchBackendConfig``."""


def shared_state() -> Mapping[str, Any]:
    from executorch.exir.passes import MemoryPlanningPass

    return {"memory_planning_pass": MemoryPlanningPass(share_mutable_buffers=True), "emit_mutable_buffer_names": True}


def banks() -> Mapping[str, Any]:
    """The planner for several memories that 1.5 has: a fast one that is too small for all, and a slow one."""
    from executorch.exir.banked_memory_planning import Bank, TargetMemoryMap, banked_memory_planning_pass

    memories = TargetMemoryMap([Bank("fast", 4096, 2), Bank("slow", 1 << 20, 1)])
    return {"memory_planning_pass": banked_memory_planning_pass(memories)}


IMAGE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
FOUR = torch.tensor([1.0, -2.0, 3.0, 0.5])
CASES = {
    "portable": Plain(Net, (IMAGE,)),
    "dynamic": Plain(Net, (IMAGE,), {"x": {0: torch.export.Dim("batch", min=1, max=4)}}),
    "xnnpack": Plain(Net, (IMAGE,), xnnpack=True),
    "branches": Plain(Branches, (torch.tensor(True), FOUR)),
    "shared state": Plain(State, (FOUR,), methods=("forward", "back"), settings=shared_state),
    "weights in a file": Plain(Net, (IMAGE,), settings=lambda: {"external_constants": True}),
    "several memories": Plain(Net, (IMAGE,), settings=banks),
}


def make(case: Plain, folder: Path) -> list[Path]:
    """Write the file as ``a.pte``; its data files."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

    module, programs = case.module().eval(), {}
    for name in case.methods:
        module.forward = getattr(module, name)  # type: ignore[method-assign]
        programs[name] = torch.export.export(module, case.inputs, dynamic_shapes=case.dims)
    partitioner = [XnnpackPartitioner()] if case.xnnpack else []
    with quiet_libraries():
        edge = to_edge_transform_and_lower(programs, partitioner=partitioner)
        emitted = edge.to_executorch(ExecutorchBackendConfig(**case.settings()))
    emitted.save(str(folder / "a.pte"))
    emitted.write_tensor_data_to_file(str(folder))
    return sorted(folder.glob("*.ptd"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(2)
def test_every_command_takes_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    if name == "several memories" and EXECUTORCH < (1, 5):
        pytest.skip("executorch 1.4 has no planner for several memories")
    monkeypatch.chdir(tmp_path)
    data = make(case, tmp_path)
    assert len(data) == (name == "weights in a file")
    named = [word for path in data for word in ("--data", path.name)]

    def said(*arguments: str) -> str:
        capfd.readouterr()
        code, found = app.run(list(arguments)), capfd.readouterr()
        assert code == 0, found
        return found.out

    relinked = json.loads(said("relink", "a.pte", "-o", "b.pte", *named, "--output", "json"))
    for method in relinked["methods"]:
        before, after = (sum(item["size"] for item in method[when]) for when in ("before", "after"))
        assert after <= before
    for file in ("a.pte", "b.pte"):
        inspected = json.loads(said("inspect", file, "--output", "json"))
        assert [method["name"] for method in inspected["methods"]] == sorted(case.methods)
    said("diff", "a.pte", "b.pte")
    for file, more in (("a.pte", named), ("b.pte", [])):
        (checked,) = json.loads(said("verify", file, *more, "--output", "json"))["files"]
        status = {check["name"]: check["status"] for check in checked["checks"]}
        assert {status[check] for check in ("bytes", "plan", "placement", "kernels")} == {"passed"}

    outputs = []
    for file, files in (("a.pte", data), ("b.pte", [])):
        shared_runtime().load(tmp_path / file, shared=len(case.methods) > 1, data=files)
        outputs.append([shared_runtime().call(method, case.inputs)[0] for method in case.methods * 2])
    assert all(torch.equal(one, other) for one, other in zip(*outputs, strict=True))
