"""The messages between the stock runtime's process and its parent: what goes in comes out, bit by bit."""

from __future__ import annotations

import io
import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from etdev.config.models import DType
from etdev.runtime.stock.wire import receive, send

_LAYOUTS = {
    "as it is": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.transpose(0, -1) if tensor.dim() else tensor,
    "every second": lambda tensor: tensor[::2] if tensor.dim() else tensor,
    "expanded": lambda tensor: tensor.unsqueeze(0).expand(3, *tensor.shape),
    "requires grad": lambda tensor: tensor.requires_grad_() if tensor.dtype.is_floating_point else tensor,
}


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Of any dtype that a program can take, with any bits, in several layouts."""
    dtype = getattr(torch, draw(st.sampled_from(get_args(DType))))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    count = math.prod(shape)
    bits = bytearray(draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)))
    if dtype == torch.bool:
        bits = bytearray(byte & 1 for byte in bits)
    tensor = torch.frombuffer(bits, dtype=dtype).reshape(shape) if bits else torch.empty(shape, dtype=dtype)
    return _LAYOUTS[draw(st.sampled_from(list(_LAYOUTS)))](tensor)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


def round_trip(values: list[object], **header: object) -> tuple[dict[str, object], list[object]]:
    stream = io.BytesIO()
    send(stream, dict(header), values)
    stream.seek(0)
    answer = receive(stream)
    assert stream.read() == b""
    return answer


def bits(tensor: Tensor) -> bytes:
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().flatten())
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def same(found: object, sent: object) -> bool:
    if isinstance(sent, Tensor):
        assert isinstance(found, Tensor)
        return (found.dtype, found.shape, bits(found)) == (sent.dtype, sent.shape, bits(sent))
    if isinstance(sent, float) and math.isnan(sent):
        return isinstance(found, float) and math.isnan(found)
    return type(found) is type(sent) and found == sent


@given(st.lists(tensors() | plain, max_size=4))
def test_values_survive_bit_by_bit(values: list[object]) -> None:
    _, found = round_trip(values)

    assert len(found) == len(values)
    assert all(map(same, found, values))


@given(st.dictionaries(st.text().filter(lambda key: key != "values"), plain.filter(lambda value: value == value)))
def test_headers_survive(header: dict[str, object]) -> None:
    stream = io.BytesIO()
    send(stream, header)
    stream.seek(0)

    assert receive(stream) == (header, [])


def test_channels_last_arrives_as_the_contiguous_tensor_it_means() -> None:
    """The runtime reads a channels-last input of a contiguous program as if it were contiguous."""
    image = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)

    _, (found,) = round_trip([image])

    assert found.is_contiguous()  # type: ignore[attr-defined]
    assert torch.equal(found, image)


def test_one_element_of_a_strided_tensor() -> None:
    """It counts as contiguous with any stride, and reading its bytes failed."""
    value = torch.arange(4.0)[1::4]
    assert value.stride() == (4,)
    _, (found,) = round_trip([value])
    assert torch.equal(found, value)


def test_a_large_tensor_is_read_in_pieces() -> None:
    large = torch.arange(3_000_000, dtype=torch.int32)

    _, (found,) = round_trip([large])

    assert torch.equal(found, large)


def test_messages_follow_each_other() -> None:
    stream = io.BytesIO()
    for number in range(3):
        send(stream, {"ask": number}, [torch.full((2,), number)])
    stream.seek(0)

    for number in range(3):
        header, (tensor,) = receive(stream)
        assert (header, tensor.tolist()) == ({"ask": number}, [number, number])


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 20, -1])
def test_a_message_that_breaks_off_is_an_end_of_file(keep: int) -> None:
    stream = io.BytesIO()
    send(stream, {"ask": "call"}, [torch.ones(3), None])

    with pytest.raises(EOFError):
        receive(io.BytesIO(stream.getvalue()[:keep]))
