"""The models that the hardware tests build: each puts memory on devices in another way.

Imported by a config too, so it stands on its own.
"""

from __future__ import annotations

import torch
from torch import nn


class Parts(nn.Module):
    """A part on one device, host ops, a part on another."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 96))
        self.second = nn.Sequential(nn.Linear(96, 32), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).sin() * 0.5)


class Convolutions(nn.Module):
    """Images of any batch size: the sizes on the devices change from call to call."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(x).mean((2, 3)))


class Shared(nn.Module):
    """One input for two devices and the host, one output that all three made."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.left, self.right = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = self.left(x), self.right(x)
        return left + right + x.cos(), left


class Cache(nn.Module):
    """A cache that only one device touches, and that it keeps from call to call."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.project = nn.Linear(16, 16)
        self.register_buffer("cache", torch.zeros(8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.mul_(0.5)
        self.cache.add_(self.project(x))
        return self.cache.softmax(-1).sum(0)


class Branch(nn.Module):
    """What a device made goes on through one of two branches on the host, and to a device again."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.before, self.after = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.before(x)
        either = torch.cond(x.sum() > 0, lambda y: y.sin() + y, lambda y: y.cos() * 2, (found,))
        return self.after(either)
