"""The model. It classifies a flower as one of three kinds of iris. Replace it with your own model."""

import torch
from torch import Tensor, nn


class Iris(nn.Module):
    """Classifier that computes logits (batch, 3) from measurements (batch, 4) in cm."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        # Buffers are part of the weights, so the program takes raw measurements, without preprocessing outside.
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("scale", torch.ones(4))
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, flowers: Tensor) -> Tensor:
        return self.layers((flowers - self.mean) * self.scale)


def make(hidden: int = 16) -> nn.Module:
    """Return the model. `entry` in etdev.toml refers to this function."""
    return Iris(hidden)
