"""Orders of instructions in programs of real exports: less memory, the same bits in the stock runtime, a proof."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import torch

import etdev
from etdev.linker import Linked, LinkOptions, link
from etdev.pipeline.stages.link.proof import compare_link
from etdev.program import Program, read, write
from etdev.program.analysis.effects import operator_name
from etdev.program.footprint import planned_memory
from etdev.program.model import KernelCall
from etdev.program.sidecar import read_sidecar
from etdev.verification.checks.plan import check_existing
from pipeline.stages.emit.emitting import Case, Emitted, emit
from support.projects import write_project
from support.stock import shared_runtime

pytestmark = pytest.mark.integration

BLOCKS = """\
import torch
from torch import nn


def conv(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.ReLU())


class Branches(nn.Module):
    # As in Inception: branches of different depths, put together.
    def __init__(self, inputs, width):
        super().__init__()
        self.parts = nn.ModuleList([
            conv(inputs, width),
            nn.Sequential(nn.Conv2d(inputs, width // 2, 1), conv(width // 2, width)),
            nn.Sequential(conv(inputs, 4 * width), conv(4 * width, width)),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Conv2d(inputs, width // 2, 1)),
        ])
    def forward(self, x):
        return torch.cat([part(x) for part in self.parts], 1)


"""
UNET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([conv(3, 8), conv(8, 16), conv(16, 32)])
        self.skips = nn.ModuleList([nn.Conv2d(8, 2, 1), nn.Conv2d(16, 4, 1)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.join = nn.ModuleList([conv(20, 16), conv(10, 8)])
    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](nn.functional.max_pool2d(first, 2))
        third = self.down[2](nn.functional.max_pool2d(second, 2))
        y = self.join[0](torch.cat([self.up[0](third), self.skips[1](second)], 1))
        return self.join[1](torch.cat([self.up[1](y), self.skips[0](first)], 1))
"""
INCEPTION = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(conv(3, 8), Branches(8, 8), Branches(28, 8), nn.MaxPool2d(2))
    def forward(self, x):
        return self.layers(x).mean((2, 3))
"""
PYRAMID = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = nn.ModuleList([conv(3, 8), conv(8, 16, 2), conv(16, 32, 2)])
        self.sides = nn.ModuleList([nn.Conv2d(size, 8, 1) for size in (8, 16, 32)])
        self.heads = nn.ModuleList([conv(8, 8) for _ in range(3)])
    def forward(self, x):
        found = []
        for level in self.levels:
            x = level(x)
            found.append(x)
        low = [side(item) for side, item in zip(self.sides, found)]
        for index in (1, 0):
            low[index] = low[index] + nn.functional.interpolate(low[index + 1], scale_factor=2.0)
        return tuple(head(item) for head, item in zip(self.heads, low))
"""
STATE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.Sequential(conv(3, 8), Branches(8, 8), Branches(28, 8))
        self.register_buffer("last", torch.zeros(1, 28, 1, 1))
        self.register_buffer("count", torch.zeros(1))
    def forward(self, x):
        y = self.branches(x).mean((2, 3), keepdim=True)
        z = y + self.last
        self.last.copy_(y * 0.5 + self.last * 0.25)
        self.count.add_(1.0)
        return z * self.count, self.last.sum((2, 3))
"""
DELEGATES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.ModuleList([conv(3, 16) for _ in range(3)])
        self.last = nn.Linear(192, 4)
    def forward(self, x):
        wide = [layer(x).repeat(1, 4, 1, 1) for layer in self.wide]
        return self.last(torch.cat([torch.amin(item, (2, 3)) for item in wide], 1))
"""


def case(text: str, backend: str = "portable", lowering: str = "stock") -> Case:
    """Build a case for a small image. Kernel-aware lowering uses the memory of the original order for its forms."""
    methods = {"forward": {"x": "float32 [1, 3, 16, 16]"}}
    return Case("", methods, backend, lowering=lowering, module=BLOCKS + text + "make = Net\n")


CASES = {
    "U-Net": case(UNET),
    "inception": case(INCEPTION),
    "pyramid": case(PYRAMID),
    "pyramid in other forms": case(PYRAMID, lowering="kernels"),
    "state": case(STATE),
    "delegates": case(DELEGATES, "xnnpack"),
}


def linked(found: Emitted, *, reorder: bool) -> Linked:
    """Link the object program. Check that the link is proved."""
    options = LinkOptions(reorder=reorder)
    done = link(found.object.program, options, found.object.sidecar)
    inputs = {name: notes.delegate_inputs for name, notes in found.object.sidecar.methods.items()}
    assert compare_link(found.object.program, done, inputs).proved
    return done


def bits(program: Program, found: Emitted, folder: Path) -> list[bytes]:
    """Return all bits of the outputs of a few calls in a row in the stock runtime."""
    write(program, folder / "found.pte")
    runtime = shared_runtime()
    runtime.load(folder / "found.pte")
    calls = itertools.chain(*itertools.tee(found.calls("forward"), 3))
    return [out.contiguous().numpy().tobytes() for inputs in calls for out in runtime.call("forward", inputs)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(2)
def test_outputs_are_the_same_to_the_bit(name: str, tmp_path: Path) -> None:
    found = emit(tmp_path, CASES[name])
    done, before = linked(found, reorder=True), linked(found, reorder=False)
    assert (done.methods[0].order is not None) == (planned_memory(done.program) != planned_memory(before.program))
    assert planned_memory(done.program)["cpu"] <= planned_memory(before.program)["cpu"]
    assert done.methods[0].order is not None or name == "U-Net"
    wanted = bits(found.object.program, found, tmp_path)
    assert bits(done.program, found, tmp_path) == wanted
    assert bits(before.program, found, tmp_path) == wanted


CONFIG = """
version = 1
[model]
entry = "model:Net"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [1, 3, 16, 16] }]
[targets.cpu]
lowering = "stock"
etrecord = true
[targets.plain]
lowering = "stock"
memory.order = "as-is"
"""


@pytest.mark.nightly
def test_a_build_reports_the_order_and_verifies_it_later(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = write_project(tmp_path, CONFIG, model=BLOCKS + INCEPTION)
    result = etdev.build(config)
    assert result.ok
    new, plain = result.targets
    (method,) = new.methods
    assert method.order is not None
    assert method.order.memory == plain.memory["cpu"] > new.memory["cpu"]
    assert plain.methods[0].order is None

    folder = tmp_path / "build" / "cpu"
    (objects,) = folder.glob("*.object.pte")
    file = objects.with_name(objects.name.replace(".object", ""))
    before, after = read(objects), read(file)
    names = [[_name(program, position) for position in range(count)] for program, count in _counts(before, after)]
    assert all(names[0][old] == names[1][new] for old, new in method.renumbered.items())
    assert list(method.renumbered.values()) != sorted(method.renumbered.values())
    notes = read_sidecar(objects.with_suffix(".json")).methods["forward"]
    assert set(notes.debug_handles) & set(method.renumbered)

    checked = check_existing(after, objects, share_state=False)
    assert checked.status == "passed"
    assert "compute the same as before the link" in checked.summary
    assert etdev.verify(config, targets=["cpu"]).ok


@pytest.mark.nightly
def test_a_report_of_another_order_proves_nothing(tmp_path: Path) -> None:
    """Without the report, the correspondence is unknown, and the file is examined alone."""
    config = write_project(tmp_path, CONFIG, model=BLOCKS + INCEPTION)
    assert etdev.build(config, targets=["cpu"]).ok
    (objects,) = (tmp_path / "build" / "cpu").glob("*.object.pte")
    after = read(objects.with_name(objects.name.replace(".object", "")))
    objects.with_name("report.json").unlink()
    checked = check_existing(after, objects, share_state=False)
    assert checked.status == "passed"
    assert "not compared" in checked.summary


def _counts(*programs: Program) -> list[tuple[Program, int]]:
    return [(program, len(program.method("forward").instructions)) for program in programs]


def _name(program: Program, position: int) -> str:
    plan = program.method("forward")
    call = plan.instructions[position]
    assert isinstance(call, KernelCall)
    return operator_name(plan.operators[call.op_index])
