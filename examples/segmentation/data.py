"""A real photograph of 24 coins, and a mask of their pixels.

The network trains on the left part, with 16 coins. Calibration uses that part too. The tests and the metric use the
right part, with 8 coins.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SEED = 3
SIDE = 64
"""Height and width of an image, in pixels; ``methods.forward.inputs`` of etdev.toml."""
TRAINED = 250
"""Number of the photograph's 384 columns that are used for training."""
STEP = 23
"""Distance of neighbouring test images, in pixels."""


@cache
def photograph() -> tuple[Tensor, Tensor]:
    """Return the photograph, (303, 384) float32 in 0..1, and its coins: 1 or 0 in the same shape."""
    with np.load(Path(__file__).parent / "coins.npz") as stored:
        return torch.from_numpy(stored["photograph"]).float() / 255, torch.from_numpy(stored["coins"]).float()


def training_images(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random parts of the left part and their coins, both (count, 1, 64, 64).

    Rotation, mirroring and brightness of each part are random.
    """
    both = torch.stack(photograph())[:, :, :TRAINED]
    found = []
    for _ in range(count):
        row, column, turns, mirrored = (
            int(torch.randint(end, (), generator=generator))
            for end in (both.shape[1] - SIDE + 1, TRAINED - SIDE + 1, 4, 2)
        )
        part = both[:, row : row + SIDE, column : column + SIDE].rot90(turns, (1, 2))
        found.append(part.flip(2) if mirrored else part)
    images, coins = torch.stack(found).split(1, dim=1)
    brightness = (torch.rand(count, 1, 1, 1, generator=generator) - 0.5) * 0.3
    return (images + brightness).clamp(0, 1), coins.contiguous()


@cache
def held_out() -> tuple[Tensor, Tensor]:
    """Return all parts on a grid over the right part and their coins, both (44, 1, 64, 64)."""
    images, coins = (
        picture[:, TRAINED:].unfold(0, SIDE, STEP).unfold(1, SIDE, STEP).flatten(0, 1).unsqueeze(1)
        for picture in photograph()
    )
    return images, coins


def calibration() -> Iterator[tuple[Tensor]]:
    """Yield training images, from which quantization learns the ranges of activations."""
    images, _ = training_images(24, torch.Generator().manual_seed(SEED))
    for image in images.split(1):
        yield (image,)


def test_samples() -> Iterator[tuple[Tensor]]:
    """Yield one in 4 of the held-out images."""
    for image in held_out()[0][::4].split(1):
        yield (image.contiguous(),)


def overlap(run: Callable[..., list[Tensor]]) -> float:
    """Return intersection over union of the coins that ``run(images) -> [logits]`` finds in the held-out images."""
    images, coins = held_out()
    found = torch.cat([run(image.contiguous())[0] for image in images.split(1)]) > 0
    wanted = coins > 0
    return ((found & wanted).sum() / (found | wanted).sum()).item()
