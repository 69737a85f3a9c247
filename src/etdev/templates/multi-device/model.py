"""The model: two stages on separate devices, and ops on the host between them. Replace it with your own model."""

import torch
from torch import Tensor, nn


class Wine(nn.Module):
    """Classifier that computes logits (batch, 3) from measurements (batch, 13).

    etdev.toml lowers the modules `encoder` and `head` for separate devices. The ops between them remain on the host.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(13))
        self.register_buffer("scale", torch.ones(13))
        self.encoder = nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = Head(width)

    def forward(self, wines: Tensor) -> Tensor:
        wines = (wines - self.mean) * self.scale
        features = self.encoder(wines)
        size = features.abs().mean(dim=1, keepdim=True) + 1e-3
        return self.head(features / size, wines)


class Head(nn.Module):
    """Second stage: computes logits (batch, 3) from features and measurements."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.deep = nn.Linear(width, 3)
        self.wide = nn.Linear(13, 3)

    def forward(self, features: Tensor, wines: Tensor) -> Tensor:
        return self.deep(features) + self.wide(wines)


def make(width: int = 32) -> nn.Module:
    """Return the model. `entry` in etdev.toml refers to this function."""
    return Wine(width)
