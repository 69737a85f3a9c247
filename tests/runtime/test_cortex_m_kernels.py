"""Average pooling of Cortex-M, against the formula of CMSIS-NN's ``arm_avgpool_s8``, written as loops."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from etdev import backends
from etdev.runtime.interpreter.cortex_m import average

STATE = backends.get("cortex-m").availability()


def _one(window: list[int]) -> int:
    total, half = sum(window), len(window) // 2
    return math.trunc((total + half if total > 0 else total - half) / len(window))


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [((8, 8), (8, 8), (8, 8), (0, 0)), ((4, 6), (2, 3), (2, 3), (0, 0)), ((5, 5), (3, 3), (2, 2), (1, 1))],
)
@pytest.mark.parametrize(("low", "high"), [(-128, 128), (-2, 2), (-128, -120), (120, 128)])
def test_average(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    low: int,
    high: int,
) -> None:
    values = torch.randint(low, high, (2, 3, *size), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    found = average(values, list(kernel), list(stride), list(padding), False, -128, 1 << 30, 0, torch.empty(0))
    for index in torch.cartesian_prod(*(torch.arange(length) for length in found.shape)).tolist():
        batch, channel, row, column = index
        window = [
            int(values[batch, channel, y, x])
            for y in range(row * stride[0] - padding[0], row * stride[0] - padding[0] + kernel[0])
            for x in range(column * stride[1] - padding[1], column * stride[1] - padding[1] + kernel[1])
            if 0 <= y < size[0] and 0 <= x < size[1]
        ]
        assert int(found[tuple(index)]) == _one(window)


def test_halves_are_rounded_away_from_zero() -> None:
    values = torch.tensor([[1, 2], [-1, -2]], dtype=torch.int8).reshape(1, 2, 1, 2)
    assert average(values, [1, 2], [1, 2], [0, 0], False).flatten().tolist() == [2, -2]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.skipif(not STATE.available, reason=f"cortex-m: {STATE.reason}; {STATE.remedy}")
def test_the_kernels_are_found_in_a_process_that_imported_nothing() -> None:
    """Modules of ExecuTorch for Cortex-M import each other, and only one order of them works."""
    script = """
from etdev.runtime.interpreter.cortex_m import find_cortex_m
assert find_cortex_m("cortex_m::quantized_add.out") is not None
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
