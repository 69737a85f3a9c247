"""U-shaped networks and networks of several branches, for images of 128 by 128 pixels, with random weights."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution and ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2), nn.ReLU())


class UNet(nn.Module):
    """A U-Net whose skips are reduced by convolutions of 1 by 1, as in U-Net variants for small devices."""

    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        sizes = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            nn.Sequential(conv(before, size), conv(size, size))
            for before, size in zip([3, *sizes], sizes, strict=False)
        )
        self.skip = nn.ModuleList(conv(size, size // 2, 1) for size in sizes)
        self.up = nn.ModuleList(nn.ConvTranspose2d(size, size // 2, 2, 2) for size in sizes)
        self.join = nn.ModuleList(conv(size + size // 2, size) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for number, layer in enumerate(self.down):
            x = layer(max_pool2d(x, 2) if number else x)
            found.append(x)
        for number in reversed(range(len(found) - 1)):
            x = self.join[number](torch.cat([self.up[number + 1](x), self.skip[number](found[number])], 1))
        return x


class UNetPlusPlus(nn.Module):
    """A U-Net with dense skips between all levels."""

    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        self.depth = depth
        self.nodes = nn.ModuleDict()
        for level in range(depth + 1):
            self.nodes[f"{level} 0"] = conv(3 if not level else width << (level - 1), width << level)
            for step in range(1, depth + 1 - level):
                self.nodes[f"{level} {step}"] = conv((step * width << level) + (width << (level + 1)), width << level)

    def forward(self, x: Tensor) -> Tensor:
        found: dict[tuple[int, int], Tensor] = {}
        for total in range(self.depth + 1):
            for step in range(total + 1):
                level = total - step
                if not step:
                    before = max_pool2d(found[level - 1, 0], 2) if level else x
                else:
                    below = interpolate(found[level + 1, step - 1], scale_factor=2.0)
                    before = torch.cat([*(found[level, earlier] for earlier in range(step)), below], 1)
                found[level, step] = self.nodes[f"{level} {step}"](before)
        return found[0, self.depth]


class Inception(nn.Module):
    """Blocks of four branches, as in Inception."""

    class Block(nn.Module):
        def __init__(self, inputs: int, width: int) -> None:
            super().__init__()
            self.parts = nn.ModuleList(
                [
                    conv(inputs, width, 1),
                    nn.Sequential(conv(inputs, width, 1), conv(width, width, 5)),
                    nn.Sequential(conv(inputs, width, 1), conv(width, 2 * width), conv(2 * width, width)),
                    nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(inputs, width // 2, 1)),
                ]
            )

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([part(x) for part in self.parts], 1)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            conv(3, 32, 3, 2), self.Block(32, 32), self.Block(112, 48), nn.MaxPool2d(2), self.Block(168, 64)
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found.mean((2, 3))


class Pyramid(nn.Module):
    """A feature pyramid with a head for each of four levels."""

    def __init__(self, width: int = 16, channels: int = 32) -> None:
        super().__init__()
        sizes = [width << level for level in range(4)]
        self.levels = nn.ModuleList(conv(before, size, 3, 2) for before, size in zip([3, *sizes], sizes, strict=False))
        self.sides = nn.ModuleList(nn.Conv2d(size, channels, 1) for size in sizes)
        self.heads = nn.ModuleList(
            nn.Sequential(conv(channels, channels), nn.Conv2d(channels, 8, 3, 1, 1)) for _ in sizes
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = []
        for level in self.levels:
            x = level(x)
            found.append(x)
        found = [side(item) for side, item in zip(self.sides, found, strict=True)]
        for index in reversed(range(len(found) - 1)):
            found[index] = found[index] + interpolate(found[index + 1], scale_factor=2.0)
        return tuple(head(item) for head, item in zip(self.heads, found, strict=True))


class HighResolution(nn.Module):
    """Branches of three resolutions that exchange their results twice, as in HRNet."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        sizes = [width << level for level in range(3)]
        self.stem = nn.ModuleList([conv(3, sizes[0]), *(conv(a, b, 3, 2) for a, b in pairwise(sizes))])
        self.branches = nn.ModuleList(nn.ModuleList(conv(size, size) for size in sizes) for _ in range(2))
        self.changes = nn.ModuleList(
            nn.ModuleList(nn.ModuleList(nn.Conv2d(a, b, 1) for a in sizes) for b in sizes) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for layer in self.stem:
            x = layer(x)
            found.append(x)
        for branches, changes in zip(self.branches, self.changes, strict=True):
            found = [branch(item) for branch, item in zip(branches, found, strict=True)]
            found = [
                sum(
                    interpolate(change(item), size=found[to].shape[2:]) if origin != to else item
                    for origin, (change, item) in enumerate(zip(row, found, strict=True))
                )
                for to, row in enumerate(changes)
            ]
        return torch.cat([item.mean((2, 3)) for item in found], 1)


MODELS = {
    "u-net": UNet,
    "u-net++": UNetPlusPlus,
    "inception": Inception,
    "pyramid": Pyramid,
    "hrnet": HighResolution,
}


def make(name: str) -> nn.Module:
    """The model of that name, in eval mode; the same weights each time."""
    torch.manual_seed(0)
    return MODELS[name]().eval().requires_grad_(False)
