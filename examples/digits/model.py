"""A small convolutional network for 8x8 handwritten digits."""

from torch import Tensor, nn


class Digits(nn.Module):
    """(batch, 1, 8, 8) float32 in 0..1 -> (batch, 10) logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *convolution(1, width),
            *convolution(width, width),
            nn.MaxPool2d(2),
            *convolution(width, 2 * width),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Linear(2 * width * 2 * 2, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.features(images).flatten(start_dim=1))


def convolution(channels: int, width: int) -> tuple[nn.Module, ...]:
    """A 3x3 convolution that keeps the size. Delegates fold the batch norm into it."""
    return nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()


def make(width: int = 32) -> nn.Module:
    """Return the network. ``width`` is the number of channels of the first two convolutions."""
    return Digits(width)
