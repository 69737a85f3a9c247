"""Memory that code may read and not write, as torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etdev.errors import UsageError

if TYPE_CHECKING:
    import torch


def refuse_write() -> UsageError:
    """Return the error of a task that writes to memory that it was given for reading."""
    return UsageError("a task writes to an argument that it only reads", hint="`resident('update')` lets it")


def read_only(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor over the same bytes that refuses each operation that writes to them, and so do its views."""
    from etdev.runtime.readonly_tensor import ReadOnlyTensor

    return ReadOnlyTensor(tensor)
