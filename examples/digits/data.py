"""scikit-learn's handwritten digits (1,797 real images), and the functions that etdev calls.

The split is fixed: every run trains on, calibrates with and tests on the same images.
"""

from collections.abc import Callable, Iterator
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor

SEED = 20
HELD_OUT = 360
CALIBRATION = 128
MAX_BATCH = 32
"""Largest batch size; must equal ``methods.forward.dims.batch.max`` in etdev.toml."""

Images = tuple[Tensor, Tensor]
"""(n, 1, 8, 8) float32 in 0..1, and (n,) int64 labels."""


@cache
def split() -> tuple[Images, Images]:
    """Return the training images and the held-out ones."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().div(16).unsqueeze(1)
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    held_out, train = order[:HELD_OUT], order[HELD_OUT:]
    return (images[train], labels[train]), (images[held_out], labels[held_out])


def calibration() -> Iterator[tuple[Tensor]]:
    """Yield training images, from which quantization learns the ranges of activations."""
    (images, _), _ = split()
    for batch in images[:CALIBRATION].split(MAX_BATCH):
        yield (batch,)


def test_samples() -> Iterator[tuple[Tensor]]:
    """Yield held-out images in batches of 1, 2, ..., 8, three times: 24 samples of 108 images."""
    _, (images, _) = split()
    for batch in images[:108].split([1, 2, 3, 4, 5, 6, 7, 8] * 3):
        yield (batch,)


def accuracy(run: Callable[..., list[Tensor]]) -> float:
    """Return the fraction of held-out images that ``run(images) -> [logits]`` classifies correctly."""
    _, (images, labels) = split()
    correct = 0
    for batch, expected in zip(images.split(MAX_BATCH), labels.split(MAX_BATCH), strict=True):
        (logits,) = run(batch)
        correct += int((logits.argmax(dim=1) == expected).sum())
    return correct / len(labels)
