"""Backend ``xnnpack``: its changes of ExecuTorch while delegates are compiled."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import torch
from executorch.backends.xnnpack import _passes
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn

from etdev.backends.xnnpack import OPS_OF_PASSES, XnnpackOptions, _op_names, backend


class Images(nn.Module):
    """Ops that the passes change: each convolution, pooling, padding, joins of many tensors, upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.pad, self.convolution, self.norm = nn.ConstantPad2d(1, 0.0), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.activation, self.alone = nn.PReLU(), nn.BatchNorm2d(4)
        self.line = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.norm(self.convolution(self.pad(x))))
        x = self.alone(nn.functional.max_pool2d(x, 2, 2).relu())
        x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = torch.cat([x, x + 1, x * 2, x - 1, x.abs(), x.neg(), x.clamp(0, 6)], dim=1)
        return self.line(x[:, :4].flatten(2)).amax(2)


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
@pytest.mark.parametrize("quantized", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["float", "int8"])
def test_skipped_passes_change_no_delegate(quantized: bool) -> None:
    torch.manual_seed(0)
    model, sample = Images(), torch.randn(1, 3, 8, 8)
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


@pytest.mark.integration
def test_patterns_have_the_ops_without_which_they_are_skipped() -> None:
    from executorch.backends.xnnpack.partition.graphs import bilinear_2d, sdpa

    patterns = {"ConvertToSDPAPass": sdpa.get_graphs(), "ConvertToUpsampleBilinear2d": bilinear_2d.get_graphs()}
    for name, graphs in patterns.items():
        assert graphs
        for graph in graphs:
            assert any(OPS_OF_PASSES[name] in op for op in _op_names(graph.graph))


class CopiedResults(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        result = x.relu().unsqueeze(-1)
        only_copied = x.exp().neg()
        return result, result.clone().clone(), only_copied.clone(), only_copied.clone()


@pytest.mark.integration
def test_a_delegate_returns_no_tensor_twice() -> None:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    sample = torch.randn(3, 4)
    program = torch.export.export(CopiedResults(), (sample,), strict=True)
    with pytest.raises(RuntimeError, match="already in the inputs"):
        to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    partitioner: Any = backend.partitioner(XnnpackOptions(), {}, "forward")
    file = to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch().buffer

    assert b"XnnpackBackend" in file
    found = _load_for_executorch_from_buffer(file).forward([sample])
    for one, other in zip(found, CopiedResults()(sample), strict=True):
        torch.testing.assert_close(one, other)
