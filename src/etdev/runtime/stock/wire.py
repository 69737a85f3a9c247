"""Messages between the stock runtime's process and its parent: a JSON header, then the bytes of tensors.

A message begins with the length of the header, as 8 bytes in little-endian order. The tensors follow the header in the
order of ``header["values"]``. Messages contain no pickles. They have no version, because both processes run the same
etdev.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

from etdev.runtime.child import read_exactly
from etdev.runtime.hostmem import host_bytes

_LENGTH = struct.Struct("<Q")


def send(stream: BinaryIO, header: dict[str, Any], values: Sequence[Any] = ()) -> None:
    """Write one message. ``values`` are tensors, numbers, strings or None."""
    described, payloads = [], []
    for value in values:
        if _is_tensor(value):
            tensor = value.detach().contiguous()
            described.append({"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)})
            payloads.append(host_bytes(tensor))
        else:
            described.append({"plain": value})
    text = json.dumps({**header, "values": described}).encode()
    stream.write(_LENGTH.pack(len(text)))
    stream.write(text)
    stream.writelines(payloads)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], list[Any]]:
    """Read one message. Raises :class:`EOFError` if the other process has closed the stream."""
    (length,) = _LENGTH.unpack(read_exactly(stream, _LENGTH.size))
    header: dict[str, Any] = json.loads(read_exactly(stream, length))
    return header, [_value(stream, described) for described in header.pop("values")]


def _value(stream: BinaryIO, described: dict[str, Any]) -> Any:
    if "plain" in described:
        return described["plain"]
    import torch

    dtype: torch.dtype = getattr(torch, described["dtype"])
    shape = described["shape"]
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(read_exactly(stream, count * dtype.itemsize), dtype=dtype).reshape(shape)


def _is_tensor(value: object) -> bool:
    return hasattr(value, "data_ptr")
