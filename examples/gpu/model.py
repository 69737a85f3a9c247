"""A classifier of 8x8 handwritten digits in two stages for two devices, with ops on the host between them."""

from torch import Tensor, nn


class Digits(nn.Module):
    """(batch, 1, 8, 8) float32 in 0..1 -> (batch, 10) logits.

    ``stem`` is lowered for one device and ``head`` for the other; both read the images. The ops between them remain on
    the host.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = Stem(width)
        self.head = Head(width)

    def forward(self, images: Tensor) -> Tensor:
        features = self.stem(images)
        scale = features.abs().mean(dim=1, keepdim=True) + 1e-3
        return self.head(features / scale, images)


class Stem(nn.Module):
    """(batch, 1, 8, 8) -> (batch, 16 * width) features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, images: Tensor) -> Tensor:
        return self.pool(self.conv(images).relu()).flatten(start_dim=1)


class Head(nn.Module):
    """Features and images -> (batch, 10) logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(16 * width, 64)
        self.classify = nn.Linear(64, 10)
        self.pixels = nn.Linear(64, 10)

    def forward(self, features: Tensor, images: Tensor) -> Tensor:
        return self.classify(self.hidden(features).relu()) + self.pixels(images.flatten(start_dim=1))


def make(width: int = 16) -> nn.Module:
    """Return the network that etdev.toml names."""
    return Digits(width)
