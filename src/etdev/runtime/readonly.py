"""Read-only memory as torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etdev.errors import UsageError

if TYPE_CHECKING:
    import torch


def refuse_write() -> UsageError:
    """Return the error of a task that writes to a read-only argument."""
    return UsageError("a task writes to an argument that it only reads", hint="`resident('update')` lets it")


def read_only(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor over the same bytes that refuses operations that write to them. Its views do, too."""
    from etdev.runtime.readonly_tensor import ReadOnlyTensor

    return ReadOnlyTensor(tensor)
