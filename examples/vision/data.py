"""Patches of three real photographs: a brick wall, grass, gravel.

The network trains on patches of the left part of each photograph. Calibration uses that part too. The tests and the
metric use the right part.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SEED = 11
SURFACES = ("brick", "grass", "gravel")
SIDE = 48
"""Height and width of a patch, in pixels; ``methods.forward.inputs`` of etdev.toml."""
TRAINED = 160
"""Number of a photograph's 256 columns that are used for training."""
STEP = 12
"""Distance of neighbouring test patches, in pixels."""


@cache
def photographs() -> Tensor:
    """Return the photographs, (3, 256, 256) float32 in 0..1."""
    with np.load(Path(__file__).parent / "photographs.npz") as stored:
        return torch.from_numpy(np.stack([stored[name] for name in SURFACES])).float() / 255


def training_patches(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random patches of the left part, (count, 1, 48, 48), and their labels.

    Half of them are mirrored. Brightness and contrast of each patch are random.
    """
    pictures = photographs()[:, :, :TRAINED]

    def drawn(end: int) -> Tensor:
        return torch.randint(end, (count,), generator=generator)

    labels, mirrored = drawn(len(SURFACES)), drawn(2)
    rows, columns = drawn(pictures.shape[1] - SIDE + 1), drawn(TRAINED - SIDE + 1)
    patches = torch.stack(
        [
            pictures[label, row : row + SIDE, column : column + SIDE]
            for label, row, column in zip(labels, rows, columns, strict=True)
        ]
    )
    patches = torch.where(mirrored.view(-1, 1, 1) == 1, patches.flip(2), patches)
    contrast, brightness = (torch.rand(2, count, 1, 1, generator=generator) - 0.5) * 0.6
    middle = patches.mean(dim=(1, 2), keepdim=True)
    changed = (patches - middle) * (1 + contrast) + middle + brightness
    return changed.clamp(0, 1).unsqueeze(1), labels


@cache
def held_out() -> tuple[Tensor, Tensor]:
    """Return all patches of a grid over the right part, (270, 1, 48, 48), and their labels."""
    pictures = photographs()[:, :, TRAINED:]
    patches = pictures.unfold(1, SIDE, STEP).unfold(2, SIDE, STEP).flatten(1, 2)
    labels = torch.arange(len(SURFACES)).repeat_interleave(patches.shape[1])
    return patches.flatten(0, 1).unsqueeze(1), labels


def calibration() -> Iterator[tuple[Tensor]]:
    """Yield training patches, from which quantization learns the ranges of activations."""
    patches, _ = training_patches(24, torch.Generator().manual_seed(SEED))
    for patch in patches.split(1):
        yield (patch,)


def test_samples() -> Iterator[tuple[Tensor]]:
    """Yield one in 15 of the held-out patches."""
    for patch in held_out()[0][::15].split(1):
        yield (patch,)


def accuracy(run: Callable[..., list[Tensor]]) -> float:
    """Return the fraction of held-out patches that ``run(images) -> [logits]`` classifies correctly."""
    patches, labels = held_out()
    found = torch.cat([run(patch)[0] for patch in patches.split(1)]).argmax(dim=1)
    return (found == labels).float().mean().item()
