"""A small convolutional network that reads handwritten digits, two rows of the image in each call.

A sensor delivers an image in such parts, as a microphone delivers frames. The model keeps the last eight rows as state.
"""

import torch
from torch import Tensor, nn

ROWS = 2
"""Rows of an image in one call. A call with the last rows of an image returns its digit."""


class Reader(nn.Module):
    """Network that computes logits (1, 10) from its state: the last eight rows that it received.

    Each call adds two rows (1, 1, 2, 8) in 0..1 to the state.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.zeros(1, 1, 8, 8), persistent=False)
        self.features = nn.Sequential(
            *convolution(1, width),
            *convolution(width, width, groups=width),
            *convolution(width, 2 * width, size=1),
            nn.MaxPool2d(2),
            *convolution(2 * width, 2 * width, groups=2 * width),
            *convolution(2 * width, 4 * width, size=1),
        )
        self.classify = nn.Linear(4 * width, 10)

    def forward(self, rows: Tensor) -> Tensor:
        window = torch.cat([self.window[:, :, ROWS:], rows], dim=2)
        self.window.copy_(window)
        return self.logits(window)

    def logits(self, images: Tensor) -> Tensor:
        """Return logits (n, 10) for images (n, 1, 8, 8), which are float32 in 0..1."""
        features = self.features(images)
        return self.classify(features.mean(dim=(2, 3), keepdim=True).flatten(start_dim=1))


def convolution(channels: int, width: int, size: int = 3, groups: int = 1) -> tuple[nn.Module, ...]:
    """Return a convolution that keeps the image's size, a batch norm and a ReLU. Delegates fold the batch norm."""
    layer = nn.Conv2d(channels, width, size, padding=size // 2, groups=groups, bias=False)
    return layer, nn.BatchNorm2d(width), nn.ReLU()


def make(width: int = 16) -> nn.Module:
    """Return the network. ``width`` is the number of channels of the first convolution."""
    return Reader(width)
