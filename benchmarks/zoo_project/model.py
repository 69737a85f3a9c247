"""The models of the zoo, as a config's ``entry``: :mod:`architectures` says which there are."""

from __future__ import annotations

from typing import Any

import torch
from architectures import BY_NAME, Architecture, random_inputs
from torch import Tensor, nn

SEED = 0


class Model(nn.Module):
    """Chosen outputs of a network, as plain tensors."""

    def __init__(self, net: nn.Module, architecture: Architecture) -> None:
        super().__init__()
        self.net = net
        self._names = [item.name for item in architecture.inputs]
        self._fields = architecture.output.split(",")
        self._fixed = {name: make() for name, make in architecture.fixed.items()}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        found = self.net(**dict(zip(self._names, inputs, strict=True)), **self._fixed)
        if isinstance(found, Tensor):
            return (found,)
        return tuple(getattr(found, field) for field in self._fields)


class Cached(nn.Module):
    """A decoder of transformers with a static key-value cache, whose buffers are the program's state."""

    def __init__(self, net: Any, positions: int) -> None:
        super().__init__()
        from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

        net.generation_config.cache_implementation = "static"
        self.net = TorchExportableModuleWithStaticCache(net, batch_size=1, max_cache_len=positions)

    def forward(self, input_ids: Tensor, cache_position: Tensor) -> Tensor:
        for index, layer in enumerate(self.net.static_cache.layers):
            # An export that is not strict follows the module's buffers, not what the cache has kept of them.
            layer.keys = getattr(self.net, f"key_cache_{index}")
            layer.values = getattr(self.net, f"value_cache_{index}")
            layer.cumulative_length = getattr(self.net, f"cumulative_length_{index}")
        logits: Tensor = self.net(input_ids=input_ids, cache_position=cache_position)
        return logits


def make(name: str) -> nn.Module:
    """The model of that name, in eval mode; the same weights each time."""
    architecture = BY_NAME[name]
    torch.manual_seed(SEED)
    net = _diffusers(architecture) if architecture.area == "diffusion" else _transformers(architecture)
    model = Model(net, architecture).eval().requires_grad_(False)
    _settle_batch_norms(model, architecture)
    return model


def _settle_batch_norms(model: nn.Module, architecture: Architecture) -> None:
    """Give them the statistics of random inputs: as they are made, what deep networks compute fades to zeros."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        model(*random_inputs(architecture, SEED, batch=8))
    model.eval()


def _transformers(architecture: Architecture) -> nn.Module:
    import transformers

    kind = getattr(transformers, architecture.model)
    # The attention that is written out; the other kinds are for accelerators.
    config = kind.config_class(**architecture.config, attn_implementation="eager")
    net: nn.Module = kind(config).eval()
    if architecture.cache is not None:
        return Cached(net, architecture.cache)
    return net.get_submodule(architecture.part) if architecture.part else net


def _diffusers(architecture: Architecture) -> nn.Module:
    import diffusers

    net: nn.Module = getattr(diffusers, architecture.model)(**architecture.config).eval()
    return net.get_submodule(architecture.part) if architecture.part else net
