"""A small U-Net: each stage of the decoder also takes the encoder's output of that size."""

import torch
from torch import Tensor, nn

WIDTHS = (8, 16, 24)
"""Channels at full size, at half, at a quarter."""


class UNet(nn.Module):
    """(batch, 1, height, width) float32 in 0..1 -> logits of the same shape; sizes are multiples of 4."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = WIDTHS
        self.encode_full = convolutions(1, first)
        self.encode_half = convolutions(first, second)
        self.bottom = convolutions(second, third)
        self.shrink = nn.MaxPool2d(2)
        self.grow_half = nn.ConvTranspose2d(third, second, 2, stride=2)
        self.decode_half = convolutions(2 * second, second)
        self.grow_full = nn.ConvTranspose2d(second, first, 2, stride=2)
        self.decode_full = convolutions(2 * first, first)
        self.classify = nn.Conv2d(first, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        full = self.encode_full(images)
        half = self.encode_half(self.shrink(full))
        quarter = self.bottom(self.shrink(half))
        half = self.decode_half(torch.cat([half, self.grow_half(quarter)], dim=1))
        full = self.decode_full(torch.cat([full, self.grow_full(half)], dim=1))
        return self.classify(full)


def convolutions(channels: int, width: int) -> nn.Module:
    """Return two 3x3 convolutions that keep the size. Delegates fold the batch norms into them."""
    layers: list[nn.Module] = []
    for before in (channels, width):
        layers += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers)


def make() -> nn.Module:
    """Return the network that etdev.toml names."""
    return UNet()
