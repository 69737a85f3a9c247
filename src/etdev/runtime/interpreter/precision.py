"""Precision of computations on CUDA devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_precision(torch_device: str) -> Iterator[None]:
    """Disable TF32 for CUDA convolutions in the block, because TF32 is less precise than float32."""
    if not torch_device.startswith("cuda"):
        yield
        return
    import torch

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
