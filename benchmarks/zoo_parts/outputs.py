"""What a model computes: in eager PyTorch, and as a file in the stock runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from architectures import BY_NAME, REAL_SIZES, random_inputs

if TYPE_CHECKING:
    import torch

    from etdev.runtime.stock import StockRuntime

CALLS = 2
"""Calls with random inputs, one after the other on the same state."""

Outputs: TypeAlias = "list[torch.Tensor]"
"""All outputs of all calls."""


def calls_of(name: str) -> int:
    """Return how often a model is called: once if it is of real size, which has no state and takes long."""
    return 1 if BY_NAME[name] in REAL_SIZES else CALLS


def eager_outputs(name: str) -> Outputs:
    """Of the model itself."""
    import torch

    from model import make

    model = make(name)
    with torch.no_grad():
        # Each call may give the same tensor of a model's state once more.
        return [value.clone() for call in range(calls_of(name)) for value in model(*random_inputs(BY_NAME[name], call))]


def outputs_of(file: Path, name: str, runtime: StockRuntime) -> Outputs:
    """Of a file. Raises :class:`~etdev.runtime.stock.ProgramFailureError`."""
    runtime.load(file)
    return [
        value
        for call in range(calls_of(name))
        for value in runtime.call("forward", random_inputs(BY_NAME[name], call), fresh=call == 0)
    ]


def same_bits(first: Outputs, second: Outputs) -> bool:
    """Whether all bits are equal: a NaN is equal to itself, zero is not to minus zero."""
    return list(map(_bits, first)) == list(map(_bits, second))


def _bits(value: torch.Tensor) -> tuple[str, Sequence[int], bytes]:
    return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()


def relative_error(found: Outputs, expected: Outputs, calls: int = CALLS) -> float:
    """Largest difference of an element, over the largest element that its output has in any call.

    Infinity if one has a number where the other has none, or another shape.
    """
    outputs = len(expected) // calls
    return max(_error(found[index::outputs], expected[index::outputs]) for index in range(outputs))


def _error(found: Outputs, expected: Outputs) -> float:
    """Of one output in all calls."""
    import torch

    size = difference = 0.0
    for mine, theirs in zip(found, expected, strict=True):
        numbers = theirs.isfinite()
        if mine.shape != theirs.shape or not torch.equal(mine.isfinite(), numbers):
            return float("inf")
        if numbers.any():
            size = max(size, theirs[numbers].double().abs().max().item())
            difference = max(difference, (mine[numbers].double() - theirs[numbers].double()).abs().max().item())
    return difference / size if size else difference
