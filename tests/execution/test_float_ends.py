"""Conversion between floats and quantized integers, for callers with floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra `build`")

import torch

from etdev.errors import UsageError
from etdev.execution.call_inputs import read_calls
from etdev.execution.float_ends import dequantize, float_outputs, quantize, quantized_inputs
from etdev.execution.random_inputs import random_inputs
from etdev.program import model as m
from etdev.program.analysis.quantized_ends import QuantizedEnd
from program.analysis.test_quantized_ends import END, OUT, described

ENDS = {"forward": (END, OUT)}


@pytest.mark.parametrize(
    ("end", "dtype"),
    [
        (END, torch.int8),
        (QuantizedEnd("input", 0, 0.0311220176, 6, -128, 127, m.ScalarType.CHAR), torch.int8),
        (QuantizedEnd("input", 0, 1e-6, 255, 0, 255, m.ScalarType.BYTE), torch.uint8),
        (QuantizedEnd("input", 0, 3.7e-4, 0, -32767, 32767, m.ScalarType.SHORT), torch.int16),
    ],
)
def test_the_same_as_pytorch(end: QuantizedEnd, dtype: torch.dtype) -> None:
    pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e", reason="needs the extra `build`")
    ops = torch.ops.quantized_decomposed
    parameters = (end.scale, end.zero_point, end.quant_min, end.quant_max, dtype)
    ties = (torch.arange(-300, 300) + 0.5) * end.scale
    x = torch.cat([torch.randn(5000) * end.scale * 200, ties, torch.tensor([0.0, -0.0, 1e30, -1e30])])
    integers = quantize(end, x)
    assert integers.dtype == dtype
    assert torch.equal(integers, ops.quantize_per_tensor(x, *parameters))
    assert torch.equal(dequantize(end, integers), ops.dequantize_per_tensor(integers, *parameters))


def test_only_quantized_ends_are_converted() -> None:
    integers, other = torch.tensor([1, 2], dtype=torch.int8), torch.tensor([1.0, 2.0])
    assert quantized_inputs(ENDS, "forward", (integers, other)) == (integers, other)
    converted, same = quantized_inputs(ENDS, "forward", (torch.tensor([0.5, 1.2]), other))
    assert converted.tolist() == [-2, -1]
    assert same is other
    assert quantized_inputs(ENDS, "another", (other, other)) == (other, other)
    first, second = float_outputs(ENDS, "forward", (other, torch.tensor([7, 8], dtype=torch.uint8)))
    assert first is other
    assert second.tolist() == [0.0, 0.25]


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".txt"])
def test_floats_of_files_are_quantized(tmp_path: Path, suffix: str) -> None:
    plan, names, place = described(END, OUT).method("forward"), ("x", "y"), tmp_path / f"x{suffix}"
    floats = np.array([0.5, -1.0, 0.0, 1e9], dtype=np.float32)
    np.save(tmp_path / "y.npy", floats)
    if suffix == ".npy":
        np.save(place, floats)
    elif suffix == ".npz":
        np.savez(place, x=floats)
    else:
        place.write_text("0.5 -1 0 1e9")
    texts = [str(place) if suffix == ".npz" else f"x={place}", f"y={tmp_path / 'y.npy'}"]
    ((x, y),) = read_calls(plan, names, texts, ENDS["forward"]).samples
    assert (x.dtype, x.tolist()) == (torch.int8, [-2, -5, -3, 127])
    assert (y.dtype, y.tolist()) == (torch.float32, floats.tolist())


def test_integers_of_files_are_not_changed(tmp_path: Path) -> None:
    plan, place = described(END, OUT).method("forward"), tmp_path / "x.npy"
    np.save(tmp_path / "y.npy", np.zeros(4, dtype=np.float32))
    np.save(place, np.array([1, -128, 127, 0], dtype=np.int8))
    texts = [f"x={place}", f"y={tmp_path / 'y.npy'}"]
    ((x, _),) = read_calls(plan, ("x", "y"), texts, ENDS["forward"]).samples
    assert x.tolist() == [1, -128, 127, 0]
    np.save(place, np.array([1, 2, 3, 4], dtype=np.int64))
    with pytest.raises(UsageError, match=r"input 'x' is int8 \[4\], but the value is int64 \[4\]"):
        read_calls(plan, ("x", "y"), texts, ENDS["forward"])


def test_random_integers_stand_for_random_floats() -> None:
    plan = described(END, OUT).method("forward")
    x, y = random_inputs(plan, 0, ENDS["forward"])
    assert torch.equal(x, quantize(END, _normal(4)))
    assert y.dtype == torch.float32


def _normal(count: int) -> torch.Tensor:
    """The first numbers of the generator with the seed 0."""
    return torch.randn(count, generator=torch.Generator().manual_seed(0))
