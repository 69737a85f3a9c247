"""Semantic checks of a ``.ptd``. The reader and the writer run them."""

from __future__ import annotations

from collections import Counter

from etdev.program.flat_tensor.model import FlatTensor, TensorLayout
from etdev.program.flaw import FlawError
from etdev.program.segments import check_order


def check_flat_tensor(data: FlatTensor) -> None:
    """Raise :class:`FlawError` for the first flaw of the data."""
    if data.version != 0:
        raise FlawError(f"expected 0, the only version that the runtime supports, found {data.version}", "version")
    if data.segment_alignment < 1 or data.segment_alignment & (data.segment_alignment - 1):
        raise FlawError(f"expected a power of two, found {data.segment_alignment}", "segment_alignment")
    check_order(data.segments)
    for key, count in Counter(item.key for item in data.named_data).items():
        if count > 1:
            raise FlawError(f"{count} items have the key {key!r}", "named_data")
    for index, item in enumerate(data.named_data):
        try:
            _check_key(item.key)
            if item.segment_index >= len(data.segments):
                message = f"{item.segment_index} is not an index into the {len(data.segments)} segments"
                raise FlawError(message, "segment_index")
            if item.tensor_layout is not None:
                _check_layout(item.tensor_layout, len(data.segments[item.segment_index].data))
        except FlawError as flaw:
            raise flaw.within("named_data", f"[{index}]") from None


def _check_key(key: str) -> None:
    if not key:
        raise FlawError("a name is empty", "key")
    if "\0" in key:
        raise FlawError(f"the name {key!r} contains a zero byte, and the runtime would end the name there", "key")


def _check_layout(layout: TensorLayout, room: int) -> None:
    if any(size < 0 for size in layout.sizes):
        raise FlawError(f"expected sizes of 0 or more, found {list(layout.sizes)}", "tensor_layout", "sizes")
    if sorted(layout.dim_order) != list(range(len(layout.sizes))):
        message = f"expected each of {len(layout.sizes)} dimensions once, found {list(layout.dim_order)}"
        raise FlawError(message, "tensor_layout", "dim_order")
    if layout.nbytes > room:
        raise FlawError(f"the tensor has {layout.nbytes} bytes, but its segment has {room}", "tensor_layout", "sizes")
