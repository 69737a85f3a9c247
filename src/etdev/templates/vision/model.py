"""The model: a small network of depthwise separable convolutions. Replace it with your own model."""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Classifier that computes logits (batch, 10) from images (batch, height, width, 1) in uint8.

    Cameras and image decoders produce images in this format. Preprocessing is part of the program: the order of the
    axes, the type and the normalization. So users of the file cannot preprocess images incorrectly.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))
        self.features = nn.Sequential(
            convolution(1, width),
            *separable(width, 2 * width),
            *separable(2 * width, 4 * width, stride=2),
        )
        self.classify = nn.Conv2d(4 * width, 10, 1)

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.permute(0, 3, 1, 2).to(torch.float32)
        features = self.features((pixels - self.mean) * self.scale)
        return self.classify(features.mean(dim=(2, 3), keepdim=True)).flatten(start_dim=1)


def separable(channels: int, width: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    """Return a 3x3 convolution of each channel separately, and a 1x1 convolution that mixes the channels."""
    return convolution(channels, channels, stride=stride, groups=channels), convolution(channels, width, size=1)


def convolution(channels: int, width: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    """Return a convolution, batch norm and ReLU. XNNPACK folds the batch norm into the convolution."""
    layer = nn.Conv2d(channels, width, size, stride, padding=size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(width), nn.ReLU())


def make(width: int = 24) -> nn.Module:
    """Return the model. `entry` in etdev.toml refers to this function."""
    return Classifier(width)
