"""Inputs without elements are allowed, and a size of 0 that was meant as dynamic is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from etdev.backends.opening import open_config
from etdev.cli import app
from etdev.pipeline.dry_run import dry_run
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions

MODEL = """
    import torch

    class Net(torch.nn.Module):
        def forward(self, x, past):
            return torch.cat([past, x], 0)
"""
CONFIG = """
    version = 1
    project.name = "m"
    model.entry = "model:Net"
    [targets.cpu]
    [methods.forward]
    inputs = [
        { name = "x", dtype = "float32", shape = [3, 4] },
        { name = "past", dtype = "float32", shape = [0, 4] },
    ]
"""


def write(folder: Path) -> Path:
    (folder / "model.py").write_text(dedent(MODEL))
    config = folder / "etdev.toml"
    config.write_text(dedent(CONFIG))
    return config


def test_validate_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["validate", "-c", str(write(tmp_path)), "--output", "json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning["rule"] == "empty-input"
    assert warning["message"] == ("`methods.forward.inputs[1].shape[0]` is 0, so the input 'past' never has elements")


def test_the_dry_run_says_it_and_calls_the_model(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra `build`")
    run = dry_run(Project(open_config(write(tmp_path), environ={})), BuildOptions())
    (note,) = run.notes
    assert note.startswith("warning: ")
    assert note.endswith("for a size that varies, write a name, and declare it in `dims`")
