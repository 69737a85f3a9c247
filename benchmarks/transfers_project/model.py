"""Small networks that each show one thing that copies between host and devices depend on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 64


class Shared(nn.Module):
    """One input for two delegates of one device, one of another, and the host."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.other = Gated(), Gated(), Gated()

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x, x)
        second = self.second(x, first.sin())
        return second + self.other(x, second.cos()) * x.tanh()


class Gated(nn.Module):
    """A layer with a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, factor: Tensor) -> Tensor:
        return self.layer(x) * factor


class Users(nn.Module):
    """What one delegate makes goes to two of the same device, one of another, and the host."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.same, self.again, self.other = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        base = self.base(x)
        return self.same(base), self.again(base), self.other(base), base.sin()


class Between(nn.Module):
    """Two devices with ops of the host between them, and one input for both and the host."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x).reshape(-1, 2 * WIDTH).softmax(-1) * x.mean()
        return self.second(inner) + x


class Branch(nn.Module):
    """What a device made goes through a branch of the host, or past it, and to the device again."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        before = self.before(x)
        either = torch.cond(x.sum() > 0, lambda y: y.sin() * 2, lambda y: y.cos() - 1, (before,))
        return self.after(either) + self.after(before)


class Tied(nn.Module):
    """One weight for two devices."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 8)
        self.first, self.second = Times(self.weight), Times(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).sin())


class Times(nn.Module):
    """A product with a weight that it is given."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


MODELS = {"shared": Shared, "users": Users, "between": Between, "branch": Branch, "tied": Tied}


def make(name: str) -> nn.Module:
    """The network of that name; the same weights each time."""
    torch.manual_seed(0)
    return MODELS[name]().eval().requires_grad_(False)
