"""State starts with the values that the model gives it, where stock emission drops them (E2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.verification import prepare

CONFIG = """
version = 1
[model]
entry = "model:Net"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [1, 4] }]
[targets.cpu]
"""
MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.full((1, 4), 5.0))
        self.register_buffer("count", torch.zeros(1))
    def forward(self, x):
        self.state.add_(x)
        self.count.add_(1)
        return self.state * 2 + self.count
"""


def test_an_initial_value_reaches_the_runtime(tmp_path: Path) -> None:
    answer = prepare(tmp_path, "cpu", CONFIG, model=MODEL).judge()["runtime"]

    assert (answer.status, answer.problems) == ("passed", ())


def test_without_the_mark_it_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What plain ExecuTorch 1.4.1 does: the state starts at zero, and every output is off by ten."""
    monkeypatch.setattr("etdev.pipeline.stages.emit.mutable_state._has_content", lambda value: False)
    answer = prepare(tmp_path, "cpu", CONFIG, model=MODEL).judge()["runtime"]

    assert answer.status == "failed"
    assert "an error of 10" in answer.summary
