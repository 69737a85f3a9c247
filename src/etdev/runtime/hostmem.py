"""Access to the bytes of buffers and tensors in host memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from etdev.errors import UsageError


def host_bytes(memory: Any, *, writable: bool = False) -> memoryview:
    """Return all bytes of a buffer or contiguous host tensor, without a copy.

    A buffer is an object such as ``bytes``, ``bytearray`` or a numpy array. Raises :class:`~etdev.errors.UsageError`
    for any other object. If ``writable``, the error is also raised for read-only memory.
    """
    if hasattr(memory, "data_ptr"):
        memory = _tensor_bytes(memory)
    try:
        view = memoryview(memory)
        view = view.cast("B") if view.nbytes else memoryview(bytearray())
    except TypeError as error:
        raise UsageError(f"a {type(memory).__name__} is not contiguous host memory: {error}") from None
    if writable and view.readonly:
        raise UsageError("the host memory to write to is read-only")
    return view


def _tensor_bytes(tensor: Any) -> Any:
    import torch

    if tensor.device.type != "cpu":
        raise UsageError(f"a tensor on {tensor.device} is not host memory", hint="pass a tensor on the CPU")
    if tensor.numel() == 0:
        return bytearray()
    if not (tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)):
        raise UsageError("the tensor is not contiguous", hint="call `.contiguous()` on it")
    return tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()


@contextmanager
def quiet_read_only() -> Iterator[None]:
    """Suppress torch's warning about a tensor over read-only memory; the block must not write to this memory."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        yield
