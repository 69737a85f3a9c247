"""Torch tensors: as inputs, in nested results, and as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Tensors = tuple["torch.Tensor", ...]


def iter_tensors(value: Any) -> list[torch.Tensor]:
    """Return all tensors in a nested result, in order (dicts and dataclasses through torch's pytree)."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the values of a dense tensor, in order of its dimensions, as bytes."""
    import torch

    flat: Any = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(flat)
