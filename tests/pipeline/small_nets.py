"""Small models of many kinds. A test copies this module into its project, so it imports torch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

F = nn.functional

SHAPES = {
    "cells": (1, 10, 16),
    "dense": (1, 3, 32, 32),
    "excite": (1, 3, 64, 64),
    "excite_hardswish": (1, 3, 64, 64),
    "excite_residual": (1, 3, 64, 64),
    "fire": (1, 3, 64, 64),
    "inception": (1, 8, 32, 32),
    "next": (1, 16, 24, 24),
    "shuffle": (1, 16, 32, 32),
    "transformer": (1, 48, 32),
    "unet": (1, 3, 32, 32),
    "wide": (1, 64, 32),
}
"""Shape of the input of each model."""


class Net(nn.Module):
    """A function of the input, and of layers that are made when the function first asks for them."""

    def __init__(self, function: Callable[[Net, Any], Any], shape: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self._function, self._next = function, 0
        self.layers = nn.ModuleList()
        self.made = False
        self.eval()
        with torch.no_grad():
            self(torch.zeros(shape))
        self.made = True

    def forward(self, x: Any) -> Any:
        self._next = 0
        return self._function(self, x)

    def _layer(self, make: Callable[..., nn.Module], *arguments: Any, **options: Any) -> Any:
        if not self.made:
            self.layers.append(make(*arguments, **options).eval())
        self._next += 1
        return self.layers[self._next - 1]

    def conv(self, x: Any, channels: int, size: int = 1, stride: int = 1, groups: int = 1) -> Any:
        """Convolve, with the same height and width if the stride is 1."""
        options = {"stride": stride, "padding": size // 2, "groups": groups}
        return self._layer(nn.Conv2d, x.shape[1], channels, size, **options)(x)

    def linear(self, x: Any, width: int) -> Any:
        """Multiply with a matrix."""
        return self._layer(nn.Linear, x.shape[-1], width)(x)

    def norm(self, x: Any) -> Any:
        """Normalize the last axis."""
        return self._layer(nn.LayerNorm, x.shape[-1])(x)

    def lstm(self, x: Any, width: int) -> Any:
        """Run a recurrent layer."""
        return self._layer(nn.LSTM, x.shape[-1], width, batch_first=True)(x)[0]

    def excite(self, x: Any, gate: Callable[[Any], Any] = torch.sigmoid) -> Any:
        """Multiply each channel with a weight that depends on the means of all channels."""
        narrow = F.relu(self.conv(x.mean((2, 3), keepdim=True), x.shape[1] // 4))
        return x * gate(self.conv(narrow, x.shape[1]))


def _cells(net: Net, x: Any) -> Any:
    return net.lstm(x, 24)


def _dense(net: Net, x: Any) -> Any:
    for _ in range(4):
        x = torch.cat([x, F.relu(net.conv(x, 8, 3))], 1)
    return x.mean((2, 3))


def _excite(net: Net, x: Any, act: Callable[[Any], Any] = F.relu, gate: Callable[[Any], Any] = torch.sigmoid) -> Any:
    x = act(net.conv(x, 8, 3, 2))
    for _ in range(2):
        wide = act(net.conv(act(net.conv(x, 32)), 32, 3, groups=32))
        x = x + net.conv(net.excite(wide, gate), 8)
    return net.linear(x.mean((2, 3)), 10)


def _excite_hardswish(net: Net, x: Any) -> Any:
    return _excite(net, x, F.hardswish, F.hardsigmoid)


def _excite_residual(net: Net, x: Any) -> Any:
    x = F.relu(net.conv(x, 16, 3))
    for channels in (32, 64):
        main = net.excite(net.conv(F.relu(net.conv(x, channels, 3, 2)), channels, 3))
        x = F.relu(net.conv(x, channels, 1, 2) + main)
    return net.linear(x.mean((2, 3)), 10)


def _fire(net: Net, x: Any) -> Any:
    x = F.max_pool2d(F.relu(net.conv(x, 16, 3, 2)), 2, 2)
    for narrow, wide in ((4, 16), (8, 32)):
        squeezed = F.relu(net.conv(x, narrow))
        x = torch.cat([F.relu(net.conv(squeezed, wide)), F.relu(net.conv(squeezed, wide, 3))], 1)
    return net.conv(x, 10).mean((2, 3))


def _inception(net: Net, x: Any) -> Any:
    pooled = net.conv(F.avg_pool2d(x, 3, 1, 1), 4)
    return torch.cat([net.conv(x, 8), F.relu(net.conv(net.conv(x, 4), 12, 3)), net.conv(x, 4, 5), pooled], 1)


def _next(net: Net, x: Any) -> Any:
    rows = net.norm(net.conv(x, 16, 7, groups=16).permute(0, 2, 3, 1))
    return x + net.linear(F.gelu(net.linear(rows, 64)), 16).permute(0, 3, 1, 2)


def _shuffle(net: Net, x: Any) -> Any:
    for _ in range(2):
        kept, changed = x.chunk(2, 1)
        changed = net.conv(net.conv(F.relu(net.conv(changed, 8)), 8, 3, groups=8), 8)
        x = torch.cat([kept, changed], 1).reshape(1, 2, 8, 32, 32).transpose(1, 2).reshape(1, 16, 32, 32)
    return x


def _transformer(net: Net, x: Any) -> Any:
    for _ in range(2):
        query, key, value = net.linear(net.norm(x), 96).reshape(1, 48, 3, 4, 8).permute(2, 0, 3, 1, 4)
        mixed = torch.softmax(query @ key.transpose(-1, -2), -1) @ value
        x = _wide(net, x + net.linear(mixed.transpose(1, 2).reshape(1, 48, 32), 32))
    return x


def _unet(net: Net, x: Any) -> Any:
    first = F.relu(net.conv(x, 8, 3))
    second = F.relu(net.conv(F.max_pool2d(first, 2, 2), 16, 3))
    third = F.relu(net.conv(F.max_pool2d(second, 2, 2), 32, 3))
    back = F.relu(net.conv(torch.cat([F.interpolate(third, scale_factor=2.0), second], 1), 16, 3))
    return net.conv(torch.cat([F.interpolate(back, scale_factor=2.0), first], 1), 8, 3)


def _wide(net: Net, x: Any) -> Any:
    return x + net.linear(F.gelu(net.linear(net.norm(x), 128)), 32)


def make(name: str) -> nn.Module:
    """Return the model of that name, with the same weights each time."""
    return Net(globals()[f"_{name}"], SHAPES[name])
