"""Kernels of ExecuTorch's library ``cortex_m``: ExecuTorch's Python functions, or functions with CMSIS-NN's arithmetic.

ExecuTorch 1.5.1's functions for requantization, addition and softmax were compared with CMSIS-NN at 99f736a6, compiled
for x86-64. On random integers, ExecuTorch and CMSIS-NN return the same integers. ExecuTorch's average pooling rounds
halves to the nearest even number, but ``arm_avgpool_s8`` rounds them away from zero.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from etdev import tosa_tools
from etdev.errors import MissingRequirementError
from etdev.runtime.interpreter.schemas import Kernel, find_kernel

if TYPE_CHECKING:
    import torch


def find_cortex_m(name: str) -> Kernel | None:
    """Return the function for a kernel; None if the kernel is unknown or a package is missing."""
    if not _register():
        return None
    kernel = find_kernel(name)
    function = _HERE.get(name)
    return kernel if kernel is None or function is None else replace(kernel, function=function)


@cache
def _register() -> bool:
    """Register ExecuTorch's Python functions for the operators of ``cortex_m``; return False if they are missing."""
    try:
        with tosa_tools.importable():  # The modules for Cortex-M import those for Ethos-U.
            # This package imports the operators, which import it. It can only be imported first.
            importlib.import_module("executorch.backends.cortex_m.passes")
            importlib.import_module("executorch.backends.cortex_m.ops.operators")
    except (ImportError, MissingRequirementError):
        return False
    return True


def average(
    values: torch.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    *_scales: object,
) -> torch.Tensor:
    """Return the averages of windows of int8 values (n, c, h, w), as ``arm_avgpool_s8`` computes them.

    An average leaves out the padding. The scale and zero point in ``_scales`` have no effect, because input and output
    share them.
    """
    import torch

    def sums(numbers: torch.Tensor) -> torch.Tensor:
        pooled = torch.nn.functional.avg_pool2d(
            numbers, kernel_size, stride, padding, ceil_mode=ceil_mode, divisor_override=1
        )
        return pooled.to(torch.int64)

    total, count = sums(values.to(torch.float64)), sums(torch.ones_like(values[:1, :1], dtype=torch.float64))
    return (total.sign() * ((total.abs() + count // 2) // count)).to(torch.int8)


def _average_of_channels_last(values: torch.Tensor, *settings: Any) -> torch.Tensor:
    return average(values.permute(0, 3, 1, 2), *settings).permute(0, 2, 3, 1).contiguous()


_HERE: Mapping[str, Callable[..., Any]] = {
    "cortex_m::quantized_avg_pool2d.out": average,
    "cortex_m::quantized_avg_pool2d_nhwc.out": _average_of_channels_last,
}
"""Maps a kernel to the function that replaces ExecuTorch's Python function."""
