"""Copies into channels-last order, for the kernels of Cortex-M."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from etdev.pipeline.stages.quantize.channels_last import use_channels_last

CLONE = torch.ops.aten.clone.default


class Plain(nn.Module):
    """Residuals, pooling, a view that needs contiguous order, and an image as the second output."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.stem, self.deep = nn.Conv2d(channels, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.last = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.stem(x))
        z = torch.max_pool2d(y + self.deep(y), 2)
        return self.last(z.view(1, -1)), z


class Mixed(nn.Module):
    """Ops on tensors in channels-last order together with contiguous ones, and state in contiguous order."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1)
        self.register_buffer("last", torch.zeros(1, 3, 8, 8))
        self.register_buffer("bias", torch.arange(192.0).reshape(1, 3, 8, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layer(x)
        z = torch.cat([x, y + x, x - y, y * self.bias], 1)
        self.last.copy_(y)
        return z, self.last.permute(0, 2, 3, 1) + 1


class Written(nn.Module):
    """An op writes through a view, or behind one."""

    def __init__(self, through: bool) -> None:
        super().__init__()
        self.layer, self.through = nn.Conv2d(3, 3, 1), through

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        v = y.flatten(1)
        (v if self.through else y).relu_()
        return y if self.through else v


class InPlace(nn.Module):
    """As in many models: an op in place, then a view."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu_().flatten(1)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (self.layer(x),))


class Last(Plain):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.deep(torch.relu(self.stem(x.clone(memory_format=torch.channels_last))))
        return self.last(torch.max_pool2d(y, 2).reshape(1, -1)), y


def _module(model: nn.Module, channels: int = 3) -> torch.fx.GraphModule:
    return torch.export.export(model.eval(), (torch.randn(1, channels, 8, 8),)).module(check_guards=False)


def _clones(module: torch.fx.GraphModule) -> Counter[str]:
    return Counter(str(node.kwargs.get("memory_format")) for node in module.graph.nodes if node.target is CLONE)


@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_read_channels_last_and_the_results_stay(channels: int) -> None:
    module = _module(Plain(channels), channels)
    image = torch.randn(1, channels, 8, 8)
    before = module(image)

    use_channels_last(module)

    after = module(image)
    assert _clones(module) == {"torch.channels_last": 1, "torch.contiguous_format": 2}
    for node in module.graph.nodes:
        if "conv2d" in str(node.target) or "max_pool2d" in str(node.target):
            for value in (node.args[0].meta["val"], node.meta["val"]):
                assert value.dim_order() == (0, 2, 3, 1)
                assert all(type(size) is int for size in value.shape)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)  # Convolutions sum in another order.
        assert one.stride() == other.stride()

    code = module.code
    use_channels_last(module)
    assert module.code == code


@pytest.mark.parametrize("model", [Mixed(), InPlace()], ids=["mixed", "in place"])
def test_all_operands_of_an_op_have_one_order(model: nn.Module) -> None:
    """Kernels of Cortex-M end the program if they do not, and no check of a build would have seen it."""
    module, image = _module(model), torch.randn(1, 3, 8, 8)
    wanted = model(image)
    use_channels_last(module)
    assert _clones(module)["torch.channels_last"] >= 1
    for node in module.graph.nodes:
        values = [operand.meta["val"] for operand in node.all_input_nodes]
        images = {value.dim_order() for value in values if isinstance(value, torch.Tensor) and value.dim() == 4}
        assert "conv" in str(node.target) or node.op == "output" or len(images) < 2, node
    found = module(image)
    pairs = zip(wanted, found, strict=True) if isinstance(wanted, tuple) else [(wanted, found)]
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)  # Convolutions sum in another order.


@pytest.mark.parametrize(
    "model",
    [Branches(), Last(), nn.Conv1d(8, 8, 1), Written(True), Written(False)],
    ids=["branches", "already", "other ops", "written through a view", "written behind a view"],
)
def test_other_graphs_stay_as_they_are(model: nn.Module) -> None:
    if isinstance(model, nn.Conv1d):
        module = torch.export.export(model, (torch.randn(1, 8, 8),)).module(check_guards=False)
    else:
        module = _module(model)
    code = module.code
    use_channels_last(module)
    assert module.code == code
