"""Conversion between floats and the integers of quantized inputs and outputs, for callers that have floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.execution.runtimes import Runtime
from etdev.program.analysis.quantized_ends import QuantizedEnd, Side
from etdev.runtime.interpreter.layout import torch_dtype

if TYPE_CHECKING:
    import torch

Ends = Mapping[str, Sequence[QuantizedEnd]]
"""Maps a method to its quantized inputs and outputs."""


def quantize(end: QuantizedEnd, value: torch.Tensor) -> torch.Tensor:
    """Return a float tensor as integers, rounded and clamped as PyTorch's ``quantize_per_tensor`` does."""
    import torch

    scaled = torch.round(value.to(torch.float32) * (1.0 / end.scale)) + end.zero_point
    return torch.clamp(scaled, end.quant_min, end.quant_max).to(torch_dtype(end.dtype))


def dequantize(end: QuantizedEnd, value: torch.Tensor) -> torch.Tensor:
    """Return integers as a tensor of float32, as PyTorch's ``dequantize_per_tensor`` does."""
    import torch

    return (value.to(torch.float32) - end.zero_point) * end.scale


def quantized_inputs(ends: Ends, method: str, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the inputs of a call. Convert floats to integers where the program takes quantized integers.

    Do not change tensors that already have the program's data type.
    """
    found = list(inputs)
    for end in _of(ends, method, "input"):
        if found[end.position].is_floating_point():
            found[end.position] = quantize(end, found[end.position])
    return tuple(found)


def float_outputs(ends: Ends, method: str, outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the outputs of a call. Convert the integers of quantized outputs to floats."""
    found = list(outputs)
    for end in _of(ends, method, "output"):
        if end.position < len(found):
            found[end.position] = dequantize(end, found[end.position])
    return tuple(found)


class FloatEnds:
    """A runtime whose calls take and return floats where the program takes and returns quantized integers."""

    def __init__(self, runtime: Runtime, ends: Ends) -> None:
        self._runtime, self._ends = runtime, ends

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        """Load a program; parameters and result are those of :meth:`Runtime.load`."""
        return self._runtime.load(file, shared=shared, data=data)

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        """Call a method; parameters and result are those of :meth:`Runtime.call`."""
        given = quantized_inputs(self._ends, method, inputs)
        return float_outputs(self._ends, method, self._runtime.call(method, given, fresh=fresh))


def _of(ends: Ends, method: str, side: Side) -> list[QuantizedEnd]:
    return [end for end in ends.get(method, ()) if end.side == side]
