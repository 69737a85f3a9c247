"""Functions on torch tensors: make random tensors, find tensors in nested results, read a tensor's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etdev.runtime.hostmem import host_bytes

if TYPE_CHECKING:
    import torch

Tensors = tuple["torch.Tensor", ...]


def iter_tensors(value: Any) -> list[torch.Tensor]:
    """Return all tensors in a nested result, including dicts and dataclasses, in the order of torch's pytree."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def random_tensor(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return a random tensor: floats are normally distributed; integers are zero, because they may be indices."""
    import torch

    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return torch.zeros(shape, dtype=dtype)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return a dense tensor's values as bytes in contiguous order."""
    return host_bytes(tensor.detach().contiguous())
