"""The data: scikit-learn's handwritten digits, 1,797 real images, every fifth of them held out for tests."""

from collections.abc import Callable, Iterator
from functools import cache

import torch
from sklearn.datasets import load_digits  # executorch brings scikit-learn
from torch import Tensor

from model import ROWS


@cache
def images(*, held_out: bool) -> tuple[Tensor, Tensor]:
    """Return the held-out samples or all other samples: images (n, 1, 8, 8) in 0..1, and their digits (n,)."""
    digits = load_digits()
    pixels = torch.from_numpy(digits.images).float().div(16).unsqueeze(1)
    chosen = (torch.arange(len(pixels)) % 5 == 0) == held_out
    return pixels[chosen], torch.from_numpy(digits.target)[chosen].long()


def strips(image: Tensor) -> Iterator[tuple[Tensor]]:
    """Yield an image (1, 8, 8) as the inputs of four calls, from top to bottom."""
    for rows in image.unsqueeze(0).split(ROWS, dim=2):
        yield (rows.contiguous(),)


def samples() -> Iterator[tuple[Tensor]]:
    """Yield inputs for verification: for each call, a part of an image. Each call starts on fresh state."""
    for image in images(held_out=True)[0][:4]:
        yield from strips(image)


def sessions() -> list[list[tuple[str, tuple[Tensor]]]]:
    """Return two sessions. Each session reads eight images, in calls on one state."""
    pixels, _ = images(held_out=True)
    return [[("forward", rows) for image in pixels[at : at + 8] for rows in strips(image)] for at in (0, 8)]


def calibration() -> Iterator[tuple[Tensor]]:
    """Yield inputs from which quantization learns the ranges of activations. No held-out image is used."""
    for image in images(held_out=False)[0][:16]:
        yield from strips(image)


def accuracy(run: Callable[..., list[Tensor]]) -> float:
    """Return the fraction of held-out images for which the call with the last rows returns the correct digit."""
    pixels, digits = images(held_out=True)
    found = [[run(*rows)[0].argmax().item() for rows in strips(image)][-1] for image in pixels]
    return (torch.tensor(found) == digits).float().mean().item()
