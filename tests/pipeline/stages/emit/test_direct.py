"""Programs that are emitted directly equal those of ExecuTorch's emitter, byte for byte, and so do the sidecars."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.errors import EmitError
from etdev.pipeline.project.places import object_place, sidecar_place
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.stages.candidates import _copied
from etdev.pipeline.stages.emit import emit_object, emit_trial
from pipeline.stages.emit.emitting import PX, Case, X, prepare
from pipeline.stages.emit.test_emit import CASES
from pipeline.stages.emit.test_layouts import ODD

MORE = {
    "numbers, lists, types and texts as arguments": Case(
        """
        def forward(self, x):
            y = torch.nn.functional.gelu(x, approximate="tanh") * 2 + x.sum(dim=(0, -1), keepdim=True)
            z = y.to(torch.float64).clamp(-1.5, 2).to(torch.int32) + 3
            return y.permute(1, 0), torch.full((2, 3), 0.5) * 2, z > 1, torch.zeros(0), torch.arange(4)
        """,
        {"forward": X},
    ),
    "absent tensors, indices and several outputs": Case(
        """
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, bias=False)
            self.norm = nn.LayerNorm(3, elementwise_affine=False)
            self.register_buffer("at", torch.tensor([2, 0]))
        def forward(self, x):
            values, indices = torch.topk(x, 3)
            return self.conv(x)[:, self.at], self.norm(x), x[:, :, self.at], values * 2, indices, x.max(dim=1)[0]
        """,
        {"forward": {"x": "float32 [1, 3, 5, 3]"}},
    ),
    "constants of all kinds": Case(
        """
        def __init__(self):
            super().__init__()
            whole = torch.arange(24.0).view(4, 6)
            self.one, self.two = nn.Parameter(torch.ones(6)), nn.Parameter(torch.ones(6))
            self.part = nn.Parameter(whole[1:3].clone())
            self.turned = nn.Parameter(torch.arange(24.0).view(6, 4).t())
            self.lasting = nn.Parameter(torch.randn(1, 3, 4, 6).to(memory_format=torch.channels_last))
            self.register_buffer("cut", whole[2])
            self.register_buffer("none", torch.zeros(0, 6))
            self.register_buffer("small", torch.ones(6, dtype=torch.bfloat16), persistent=False)
        def forward(self, x):
            y = x * self.one + self.two + self.cut + torch.tensor([1.0, 2, 3, 4, 5, 6])
            return y + self.part.sum(), y + self.turned, y * self.lasting, torch.cat([y, self.none]), self.small.float()
        """,
        {"forward": {"x": "float32 [4, 6]"}},
    ),
    "channels last": Case(
        """
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
        def forward(self, x):
            y = self.conv(x.to(memory_format=torch.channels_last))
            return y.relu() + 1, y.flatten(1), torch.cat([y, y], 1)
        """,
        {"forward": {"x": "float32 [1, 3, 6, 5]"}},
    ),
    "two methods with common constants": Case(
        """
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        def forward(self, x): return self.b(self.a(x).relu())
        def again(self, x): return {"a": self.a(x).sin(), "list": [x * 2, self.b(x)]}["list"]
        """,
        {"forward": X, "again": X},
        backend="xnnpack",
    ),
    "nothing used": Case("def forward(self, p, x): return torch.tanh(torch.ones(2))", {"forward": PX}),
}
TABLE = {**CASES, **MORE, **ODD}
DIRECT = {
    "views of what lies in channels-last order": False,
    "several outputs and a list": True,
    "inputs as outputs": True,
    "delegates and kernels": True,
    "bounded sizes": False,
    "a scan": False,
    "no inputs, and constant methods": False,
    **dict.fromkeys((*MORE, *ODD), True),
    "a transposed constant in branches": False,
    "transposed state": False,
}
"""Whether a case is emitted directly. Other cases do not matter here."""


@pytest.mark.integration
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.sampled(2)
def test_a_directly_emitted_program_is_executorchs(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    project, exported, lowered = prepare(tmp_path, TABLE[name])
    place = object_place(project, "cpu")
    with quiet_libraries():
        trial = emit_trial(project, _copied(lowered), exported, "cpu")
        direct = emit_object(project, _copied(lowered), exported, "cpu", place)
        notes = sidecar_place(place).read_bytes()
        monkeypatch.setattr("etdev.pipeline.stages.emit.emission.emit_directly", lambda *_, **__: None)
        theirs = emit_object(project, lowered, exported, "cpu", place)

    assert (trial is not None) is DIRECT.get(name, trial is not None)
    assert direct.program == theirs.program
    assert notes == sidecar_place(place).read_bytes()
    if trial is not None:
        assert trial.program == theirs.program


@pytest.mark.integration
def test_an_op_whose_schema_cannot_be_parsed_is_left_to_executorch(tmp_path: Path) -> None:
    """Torch's code generator does not know lists of bools as defaults. ExecuTorch cannot emit the op either."""
    schema = "(Tensor x, bool[3] flags=[True, False, True]) -> Tensor"
    module = f"""
import torch

LIBRARY = torch.library.Library("etdev_direct", "FRAGMENT")
LIBRARY.define("flagged{schema}")
LIBRARY.impl("flagged", lambda x, flags=None: x.clone(), "CompositeExplicitAutograd")


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.etdev_direct.flagged(x)


def make():
    return Net()
"""
    project, exported, lowered = prepare(tmp_path, Case("", {"forward": X}, module=module))
    with quiet_libraries():
        assert emit_trial(project, _copied(lowered), exported, "cpu") is None
        with pytest.raises(EmitError):
            emit_object(project, lowered, exported, "cpu", object_place(project, "cpu"))
