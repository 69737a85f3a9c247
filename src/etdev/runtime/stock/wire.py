"""Messages between the stock runtime's process and its parent: a JSON header, then the bytes of tensors.

A message begins with the length of the header, as 8 bytes in little-endian order. The tensors follow the header in the
order of ``header["values"]``. Messages contain no pickles. They have no version, because both processes run the same
etdev.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import torch

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 20


def send(stream: BinaryIO, header: dict[str, Any], values: Sequence[Any] = ()) -> None:
    """Write one message. ``values`` are tensors, numbers, strings or None."""
    described, payloads = [], []
    for value in values:
        if _is_tensor(value):
            tensor = value.detach().contiguous()
            described.append({"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)})
            payloads.append(_bytes_of(tensor))
        else:
            described.append({"plain": value})
    text = json.dumps({**header, "values": described}).encode()
    stream.write(_LENGTH.pack(len(text)))
    stream.write(text)
    stream.writelines(payloads)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], list[Any]]:
    """Read one message. Raises :class:`EOFError` if the other process has closed the stream."""
    (length,) = _LENGTH.unpack(_read(stream, _LENGTH.size))
    header: dict[str, Any] = json.loads(_read(stream, length))
    return header, [_value(stream, described) for described in header.pop("values")]


def _value(stream: BinaryIO, described: dict[str, Any]) -> Any:
    if "plain" in described:
        return described["plain"]
    import torch

    dtype: torch.dtype = getattr(torch, described["dtype"])
    shape = described["shape"]
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(_read(stream, count * dtype.itemsize), dtype=dtype).reshape(shape)


def _is_tensor(value: object) -> bool:
    return hasattr(value, "data_ptr")


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    import torch

    if tensor.numel() == 0:
        return memoryview(b"")
    # A contiguous tensor with one element may have any stride, but `view` requires a stride of 1.
    flat: Any = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()
    return memoryview(flat)


def _read(stream: BinaryIO, length: int) -> bytearray:
    data = bytearray(length)
    view, done = memoryview(data), 0
    while done < length:
        read = stream.readinto(view[done : done + _CHUNK])  # type: ignore[attr-defined]
        if not read:
            raise EOFError
        done += read
    return data
