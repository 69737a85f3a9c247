"""A small network like MobileNetV2: inverted residuals with depthwise convolutions."""

from torch import Tensor, nn

STAGES = ((12, 1, 1), (16, 2, 1), (24, 2, 2), (32, 2, 1))
"""Channels, stride of the first block, and number of blocks."""
EXPANSION = 3


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution and projection, with a residual connection if the shapes match."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        inner = channels * EXPANSION
        self.layers = nn.Sequential(
            *convolution(channels, inner, 1),
            *convolution(inner, inner, 3, stride=stride, groups=inner),
            nn.Conv2d(inner, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.adds = stride == 1 and channels == width

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class MobileNet(nn.Module):
    """(batch, channels, height, width) float32 in 0..1 -> (batch, classes) logits."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        width = STAGES[0][0]
        blocks: list[nn.Module] = [nn.Sequential(*convolution(channels, width, 3, stride=2))]
        for after, stride, repeats in STAGES:
            for step in (stride, *[1] * (repeats - 1)):
                blocks.append(InvertedResidual(width, after, step))
                width = after
        self.features = nn.Sequential(*blocks, nn.Sequential(*convolution(width, 3 * width, 1)))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Linear(3 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.pool(self.features(images)).flatten(start_dim=1))


def convolution(channels: int, width: int, size: int, stride: int = 1, groups: int = 1) -> tuple[nn.Module, ...]:
    """Return a convolution with batch norm, which lowering folds into it, and ReLU6."""
    layer = nn.Conv2d(channels, width, size, stride=stride, padding=size // 2, groups=groups, bias=False)
    return layer, nn.BatchNorm2d(width), nn.ReLU6()


def make(channels: int = 1, classes: int = 3) -> nn.Module:
    """Return the network that etdev.toml names."""
    return MobileNet(channels, classes)
