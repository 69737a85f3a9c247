"""Small projects on disk, for the tests of the stages and of whole builds."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from etdev.pipeline.api import open_project
from etdev.pipeline.project import Project

LINEAR = """
    import torch
    from torch import nn

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layer = nn.Linear(32, 32)

        def forward(self, x):
            return self.layer(x).relu()
"""
"""Source of a module with a class ``Linear``: float32 [n, 32] -> float32 [n, 32], of fixed weights."""

LINEAR_CONFIG = """
    version = 1
    [project]
    name = "tiny"
    [model]
    entry = "model:Linear"
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [2, 32] }]
"""
"""The tables of a config for :data:`LINEAR`, all but ``targets``."""


def write_project(folder: Path, config: str, **files: str) -> Path:
    """Write ``etdev.toml`` and a module ``NAME.py`` per keyword; common indentation goes. The config's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    path = folder / "etdev.toml"
    path.write_text(dedent(config).lstrip("\n"), encoding="utf-8")
    return path


def make_project(folder: Path, config: str, **files: str) -> Project:
    """:func:`write_project`, opened as the stages see it, without any ``ETDEV__`` variable."""
    return open_project(write_project(folder, config, **files), environ={})


SAMPLES = """
    import torch

    def samples():
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(2, 32, generator=generator),) for _ in range(3)]

    def score(run):
        return float(sum(len(outputs) for outputs in run.map(samples())))
"""
"""Source of a module with samples for :data:`LINEAR`, and a metric that counts three outputs."""

FOUR_TARGETS = (
    LINEAR_CONFIG
    + """
    samples = "data:samples"
    [quantize.int8]
    scheme = "pt2e-xnnpack"
    calibration = "data:samples"
    [quantize.w4]
    scheme = "8da4w"
    [targets.portable]
    verify.accuracy = { fn = "data:score", min = 3 }
    [targets.xnnpack]
    partitioners = [{ backend = "xnnpack" }]
    [targets.int8]
    quantize = "int8"
    partitioners = [{ backend = "xnnpack" }]
    [targets.w4]
    quantize = "w4"
    partitioners = [{ backend = "xnnpack" }]
"""
)
"""A whole config for :data:`LINEAR` and :data:`SAMPLES`: every scheme and both backends."""
