"""Backend ``xnnpack``: what it changes in ExecuTorch while it compiles delegates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import torch
from executorch.backends.xnnpack import _passes
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn

from etdev.backends.xnnpack import OPS_OF_PASSES, backend


class Images(nn.Module):
    """Ops that the passes change: each convolution, pooling, padding, joins of many tensors, upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.ConstantPad2d(1, 0.0), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU())
        self.alone = nn.BatchNorm2d(4)
        self.line = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.alone(nn.functional.max_pool2d(self.first(x), 2).relu())
        x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = torch.cat([x, x + 1, x * 2, x - 1, x.abs(), x.neg(), x.clamp(0, 6)], dim=1)
        return self.line(x[:, :4].flatten(2)).amax(2)


class Attention(nn.Module):
    """ExecuTorch's pattern of attention, with a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = nn.Buffer(torch.zeros(6, 6))
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        found = nn.functional.scaled_dot_product_attention(x, x * 2, x + 1, attn_mask=self.mask)
        return self.out(found.permute(0, 2, 1, 3).clone(memory_format=torch.contiguous_format))


def lowered(model: nn.Module, sample: Tensor, *, quantized: bool, changed: bool) -> bytes:
    """The file of a model; ``changed`` lowers it in the backend's context."""
    program = torch.export.export(model.eval(), (sample,), strict=True)
    if quantized:
        program = torch.export.export(_quantized(program.module(), sample), (sample,), strict=True)
    with backend.lowering() if changed else nullcontext():
        manager = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    return bytes(manager.to_executorch().buffer)


def _quantized(module: Any, sample: Tensor) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(module, XNNPACKQuantizer().set_global(get_symmetric_quantization_config()))
    prepared(sample)
    return convert_pt2e(prepared)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("make", "shape", "quantized"),
    [
        pytest.param(Images, (1, 3, 8, 8), False, id="images"),
        pytest.param(Images, (1, 3, 8, 8), True, id="int8 images", marks=pytest.mark.nightly),
        pytest.param(Attention, (1, 2, 6, 8), False, id="attention", marks=pytest.mark.nightly),
    ],
)
def test_skipped_passes_change_no_delegate(
    make: Callable[[], nn.Module], shape: tuple[int, ...], quantized: bool
) -> None:
    torch.manual_seed(0)
    model, sample = make(), torch.randn(shape)
    files = [lowered(model, sample, quantized=quantized, changed=changed) for changed in (False, True)]
    assert files[0] == files[1]


def test_passes_are_skipped_in_the_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    transform = _passes._transform

    def noted(program: Any, graph_pass: Any) -> Any:
        ran.append(type(graph_pass).__name__)
        return transform(program, graph_pass)

    monkeypatch.setattr(_passes, "_transform", noted)
    lowered(nn.Linear(8, 2), torch.randn(1, 8), quantized=False, changed=True)

    assert ran
    assert not set(ran) & OPS_OF_PASSES.keys()
    assert _passes._transform is noted
    assert OPS_OF_PASSES.keys() <= {each.__name__ for each in _passes.XNNPACKPassManager(None).passes}  # type: ignore[arg-type]
