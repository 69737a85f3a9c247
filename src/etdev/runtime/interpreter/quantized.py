"""Kernels of ``quantized_decomposed``: PyTorch's functions, and replacements for functions that PyTorch lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from etdev.runtime.interpreter.schemas import Kernel, Parameter

if TYPE_CHECKING:
    import torch

_IN_TORCH = {
    "quantize_per_tensor.out": "quantize_per_tensor.default",
    "quantize_per_tensor.Tensor_out": "quantize_per_tensor.tensor",
    "dequantize_per_tensor.out": "dequantize_per_tensor.default",
    "dequantize_per_tensor.Tensor_out": "dequantize_per_tensor.tensor",
    "quantize_per_channel.out": "quantize_per_channel.default",
    "dequantize_per_channel.out": "dequantize_per_channel.default",
    "quantize_per_token.out": "quantize_per_token.default",
    "dequantize_per_token.out": "dequantize_per_token.default",
    "choose_qparams.Tensor_out": "choose_qparams.tensor",
    "choose_qparams_per_token_asymmetric.out": "choose_qparams_per_token_asymmetric.default",
}
"""Maps a kernel to PyTorch's overload that has the same parameters."""


@cache
def find_quantized(name: str) -> Kernel | None:
    """Return the function for a kernel; None if there is none."""
    import torch
    import torch.ao.quantization.fx._decomposed

    short = name.partition("::")[2]
    if short in _IN_TORCH:
        base, _, overload = _IN_TORCH[short].partition(".")
        function = getattr(getattr(torch.ops.quantized_decomposed, base), overload)
        parameters = tuple(
            Parameter(argument.name, argument.name.endswith("dtype"), False, argument.kwarg_only)
            for argument in function._schema.arguments
        )
        return Kernel(function, parameters)
    if short not in _HERE:
        return None
    function, names = _HERE[short]
    return Kernel(function, tuple(Parameter(item, item == "dtype", False, False) for item in names.split()))


def _add(
    a: torch.Tensor,
    a_scale: float,
    a_zero_point: int,
    a_min: int,
    a_max: int,
    b: torch.Tensor,
    b_scale: float,
    b_zero_point: int,
    b_min: int,
    b_max: int,
    scale: float,
    zero_point: int,
    smallest: int,
    largest: int,
) -> torch.Tensor:
    import torch

    total = (a.float() - a_zero_point) * a_scale + (b.float() - b_zero_point) * b_scale
    return torch.clamp(torch.round(total / scale) + zero_point, smallest, largest).to(a.dtype)


def _embedding(bits: int) -> Callable[..., torch.Tensor]:
    """Return a function that looks up rows in a table of packed weights. Each weight has ``bits`` bits."""

    def embedding(
        weight: torch.Tensor,
        scales: torch.Tensor,
        zero_points: torch.Tensor | None,
        smallest: int,
        largest: int,
        indices: torch.Tensor,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        rows = indices.reshape(-1)
        levels = _unpacked(weight[rows], bits).to(scales.dtype)
        groups = scales[rows].reshape(len(rows), -1, 1)
        levels = levels.reshape(len(rows), groups.shape[1], -1)
        if zero_points is not None:
            levels = levels - zero_points[rows].reshape(len(rows), -1, 1)
        return (levels * groups).reshape(*indices.shape, -1).to(dtype or scales.dtype)

    return embedding


def _unpacked(rows: torch.Tensor, bits: int) -> torch.Tensor:
    """Unpack weights. A byte's first weight is in its highest bits if ``bits`` is 4, but in its lowest bits if 2."""
    import torch

    if bits == 8:
        return rows
    shifts = (4, 0) if bits == 4 else (0, 2, 4, 6)
    numbers = rows.view(torch.uint8).to(torch.int16)
    parts = [(numbers >> shift) % (1 << bits) for shift in shifts]
    return torch.stack(parts, dim=-1).flatten(-2) - (1 << (bits - 1))


def _mixed_mm(
    left: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor | None
) -> torch.Tensor:
    """Multiply a matrix by an int8 weight that has one scale per row."""
    levels = weight.to(scales.dtype)
    if zero_points is not None:
        levels = levels - zero_points.reshape(-1, 1)
    return left @ (levels * scales.reshape(-1, 1)).to(left.dtype)


_EMBEDDING = "weight weight_scales weight_zero_points weight_quant_min weight_quant_max indices"
_ADD = "a a_scale a_zero_point a_min a_max b b_scale b_zero_point b_min b_max scale zero_point smallest largest"
_HERE: dict[str, tuple[Callable[..., Any], str]] = {
    "add.out": (_add, _ADD),
    "mixed_mm.out": (_mixed_mm, "input weight weight_scales weight_zero_points"),
    **{
        f"embedding_{name}.{overload}": (_embedding(bits), f"{_EMBEDDING}{more}")
        for name, bits in (("byte", 8), ("4bit", 4), ("2bit", 2))
        for overload, more in (("out", ""), ("dtype_out", " dtype"))
    },
}
"""Maps a kernel to a pair: the function that computes its results, and the names of its parameters."""
