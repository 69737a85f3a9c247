"""Errors of single modules of a quantized model (E2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.pipeline.project import Project
from etdev.pipeline.stages.artifacts import ExportedModel
from support.stages import prepare

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs the extra `build`")

CONFIG = """
version = 1
[model]
entry = "model:Net"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [1, 3, 16, 16] }]
[quantize.small]
SCHEME
[targets.cpu]
quantize = "small"
partitioners = [{ BACKEND }]
"""
MODEL = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(outputs)
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(self.norm(self.conv(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.stem, self.middle, self.last = Block(3, 8), Block(8, 8), Block(8, 8)
            self.register_buffer("count", torch.zeros(1))
            with torch.no_grad():
                self.middle.conv.weight[0] *= 1000
                self.middle.norm.running_var[0] *= 1e6
                self.middle.conv.weight[0, 0, 0, 0] *= 300

        def forward(self, x):
            self.count.add_(1)
            x = self.stem(x)
            return self.last(x + self.middle(x)) + 0 * self.count
"""
DATA = """
    import torch

    def calibration():
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(1, 3, 16, 16, generator=generator),) for _ in range(4)]
"""


def quantized(project: Callable[..., Project], scheme: str, backend: str = 'backend = "xnnpack"') -> ExportedModel:
    config = CONFIG.replace("SCHEME", scheme).replace("BACKEND", backend)
    return prepare(project(config, model=MODEL, data=DATA))[1]


def test_the_module_with_extreme_weights_is_the_worst(project: Callable[..., Project]) -> None:
    """It is the convolution itself, not a later module that gets its errors. The norm is folded into it."""
    model = quantized(project, 'scheme = "pt2e-xnnpack"\ncalibration = "data:calibration"\nper_channel = false')
    sample = (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1)),)
    before = {name: buffer.clone() for name, buffer in model.eager["forward"].named_buffers()}  # type: ignore[attr-defined]
    errors = model.local_errors["forward"](sample)
    assert errors == sorted(errors, key=lambda error: error.snr_db)
    assert {error.module for error in errors} >= {"stem.conv", "middle.conv", "last.conv"}
    assert errors[0].module == "middle.conv"
    assert errors[0].snr_db < errors[1].snr_db - 3
    assert errors == model.local_errors["forward"](sample)
    after = dict(model.eager["forward"].named_buffers())  # type: ignore[attr-defined]
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scheme", "backend"),
    [
        ("arm-ethos-u", 'backend = "ethos-u", options.target = "ethos-u55-128"'),
        ("cortex-m", 'backend = "cortex-m"'),
    ],
)
def test_schemes_of_other_backends(project: Callable[..., Project], scheme: str, backend: str) -> None:
    target = '\ntarget = "ethos-u55-128"' * (scheme == "arm-ethos-u")
    model = quantized(project, f'scheme = "{scheme}"\ncalibration = "data:calibration"{target}', backend)
    sample = (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1)),)
    errors = model.local_errors["forward"](sample)
    assert {error.module for error in errors} & {"stem.conv", "middle.conv", "last.conv"}
    assert all(0 < error.snr_db < 80 for error in errors)
