"""The data: scikit-learn's handwritten digits, 1,797 real images, every fifth of them held out for tests."""

from collections.abc import Callable, Iterator
from functools import cache

import torch
from sklearn.datasets import load_digits  # executorch brings scikit-learn
from torch import Tensor

MAX_BATCH = 16
"""Largest batch size; must equal `dims.batch.max` in etdev.toml."""


@cache
def images(*, held_out: bool) -> tuple[Tensor, Tensor]:
    """Return the held-out samples or all other samples: images (samples, 8, 8, 1) in uint8, and digits (samples,)."""
    digits = load_digits()
    pixels = torch.from_numpy(digits.images).mul(255 / 16).round().to(torch.uint8).unsqueeze(-1)
    chosen = (torch.arange(len(pixels)) % 5 == 0) == held_out
    return pixels[chosen], torch.from_numpy(digits.target)[chosen].long()


def samples() -> Iterator[tuple[Tensor]]:
    """Yield inputs for verification, in batches of 1, 2, 4, 8 and 16. Each tuple has the inputs of one call."""
    pixels, _ = images(held_out=True)
    for batch in pixels[:62].split([1, 2, 4, 8, 16] * 2):
        yield (batch,)


def calibration() -> Iterator[tuple[Tensor]]:
    """Yield inputs from which quantization learns the ranges of activations. No held-out image is used."""
    pixels, _ = images(held_out=False)
    for batch in pixels[:128].split(MAX_BATCH):
        yield (batch,)


def accuracy(run: Callable[..., list[Tensor]]) -> float:
    """Return the fraction of held-out images classified correctly. `run(*inputs)` calls the built program."""
    pixels, digits = images(held_out=True)
    named = [run(batch)[0].argmax(dim=1) for batch in pixels.split(MAX_BATCH)]
    return (torch.cat(named) == digits).float().mean().item()
