"""The data: R. A. Fisher's 150 iris flowers, every fifth of them held out for tests."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor


def flowers(*, held_out: bool) -> tuple[Tensor, Tensor]:
    """Return the held-out flowers or all other flowers: measurements (flowers, 4) in cm, and kinds (flowers,)."""
    with (Path(__file__).parent / "iris.csv").open(newline="") as file:
        rows = [row for index, row in enumerate(csv.reader(file)) if index > 0 and (index % 5 == 0) == held_out]
    measurements = torch.tensor([[float(value) for value in row[:4]] for row in rows])
    kinds = torch.tensor([int(row[4]) for row in rows])
    return measurements, kinds


def samples() -> Iterator[tuple[Tensor]]:
    """Yield inputs for verification, in batches of 1, 2, 3 and so on. Each tuple has the inputs of one call."""
    measurements, _ = flowers(held_out=True)
    for batch in measurements.split([1, 2, 3, 4, 5, 6, 9]):
        yield (batch,)


def calibration() -> Iterator[tuple[Tensor]]:
    """Yield inputs from which quantization learns the ranges of activations. No held-out flower is used."""
    measurements, _ = flowers(held_out=False)
    for batch in measurements.split(24):
        yield (batch,)


def accuracy(run: Callable[..., list[Tensor]]) -> float:
    """Return the fraction of held-out flowers classified correctly. `run(*inputs)` calls the built program."""
    measurements, kinds = flowers(held_out=True)
    (logits,) = run(measurements)
    return (logits.argmax(dim=1) == kinds).float().mean().item()
