"""The model: two stages on separate devices, with work for the host between them. Replace it with your own model."""

import torch
from torch import Tensor, nn


class Wine(nn.Module):
    """(batch, 13) measurements -> (batch, 3) logits.

    etdev.toml names the modules `encoder` and `head`, and lowers each for a separate device. The ops between them stay
    on the host.
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
    """Features and measurements -> (batch, 3) logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.deep = nn.Linear(width, 3)
        self.wide = nn.Linear(13, 3)

    def forward(self, features: Tensor, wines: Tensor) -> Tensor:
        return self.deep(features) + self.wide(wines)


def make(width: int = 32) -> nn.Module:
    """Returns the model. `entry` of etdev.toml names this function."""
    return Wine(width)
