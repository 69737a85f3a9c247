"""Tensors in channels-last order: kernels that do not take them get others (E2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.pipeline.project.places import object_place
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.stages.emit import emit_object
from etdev.runtime.stock import ProgramFailureError
from pipeline.stages.emit.emitting import Case, Emitted, emit, prepare

MIXED = Case(
    """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("bias", torch.arange(1.0, 5.0).view(1, 4, 1, 1))
        self.register_buffer("state", torch.zeros(1, 4, 4, 6))
        last = torch.ones(1, 4, 4, 6).contiguous(memory_format=torch.channels_last)
        self.register_buffer("last", last)
        self.conv, self.norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        y = (x + 1).to(memory_format=torch.channels_last)
        self.state.copy_(y)
        self.last.add_(x)
        one, other = y.split([1, 3], 1)
        single = [y / torch.tensor(2.0) + self.bias, y + x, y.relu() * y, self.last * 1, self.state * 1]
        shaped = [y[:, 1], y.flatten(1), y.permute(0, 2, 3, 1), y.flip(1), nn.functional.pad(y, (1, 1)), one, other]
        several = [torch.cat([y, y], 1), torch.where(x > 0, y, x), y.gather(1, (x > 9).long())]
        layers = [self.conv(y), self.norm(y), nn.functional.max_pool2d(y, 2), nn.functional.layer_norm(y, (6,))]
        shuffled = self.conv(nn.functional.pixel_shuffle(torch.cat([y] * 4, 1), 2)) / torch.tensor(3.0) + self.bias
        branch = torch.cond(x.sum() > 0, lambda y: y * self.bias, lambda y: y + self.bias, (y,))
        return *single, *shaped, *several, *layers, shuffled, branch
    """,
    {"forward": {"x": "float32 [1, 4, 4, 6]"}},
)


def test_all_ops_take_tensors_in_channels_last_order(tmp_path: Path) -> None:
    made = emit(tmp_path, MIXED)

    made.check_addresses()
    made.check_answers()


KEPT = Case(
    """
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)
    def forward(self, x):
        y = self.conv(x.to(memory_format=torch.channels_last)).relu()
        return nn.functional.max_pool2d(y + y, 2)
    """,
    {"forward": {"x": "float32 [1, 4, 6, 6]"}},
)


def test_ops_that_take_them_keep_the_order(tmp_path: Path) -> None:
    made = emit(tmp_path, KEPT)

    names = [made.plan().operators[call.op_index].name for call in made.plan().chains[0].instructions]  # type: ignore[union-attr]
    assert sum("dim_order" in name for name in names) == 1
    made.check_answers()


def test_without_the_copies_the_runtime_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with plain ExecuTorch: a division of a tensor in channels-last order by a number (Swin2SR)."""
    body = "def forward(self, x): return x.to(memory_format=torch.channels_last) / torch.tensor(2.0)"
    project, exported, lowered = prepare(tmp_path, Case(body, MIXED.methods))
    monkeypatch.setattr("etdev.pipeline.stages.emit.emission.set_plain_orders", lambda module: None)
    with quiet_libraries():
        objects = emit_object(project, lowered, exported, "cpu", object_place(project, "cpu"))

    with pytest.raises(ProgramFailureError, match="0x12"):
        Emitted(project, exported, lowered, objects).check_answers()
