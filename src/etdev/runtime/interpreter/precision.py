"""How exactly torch computes: as the types of a program say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_precision(torch_device: str) -> Iterator[None]:
    """Within the block, convolutions on CUDA do not round float32 to TF32, which torch lets them by default."""
    if not torch_device.startswith("cuda"):
        yield
        return
    import torch

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
