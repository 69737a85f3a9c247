"""Comparison of the shape and the element type of a value with an input's declaration in the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from etdev.inspection.naming import dtype_name
from etdev.program import model as m
from etdev.runtime.interpreter.layout import torch_dtype

if TYPE_CHECKING:
    import torch


def wanted(value: m.Value) -> str:
    """Describe the value that an input takes, such as ``float32 [32, 8] at most``."""
    if not isinstance(value, m.Tensor):
        return type(value).__name__.lower()
    text = f"{dtype_name(value.scalar_type)} {list(value.sizes)}"
    return text if value.is_static else f"{text} at most"


def misfit(declared: m.Value, value: torch.Tensor, called: str) -> str | None:
    """Return the reason why a value does not match an input's declaration in the program; None if it matches.

    If only sizes are wrong, the reason names each wrong axis.
    """
    if not isinstance(declared, m.Tensor):
        return f"{called} is a single {type(declared).__name__.lower()}, not a tensor"
    is_kind = value.dtype == torch_dtype(declared.scalar_type) and value.dim() == len(declared.sizes)
    if is_kind and not wrong_axes(declared, value.shape):
        return None
    found = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    text = f"{called} is {wanted(declared)}, but the value is {found}"
    if is_kind:
        text += f": {_axes_text(declared, value.shape)}"
    order = _channel_order(declared, value.shape)
    return text if order is None else f"{text}; the value looks like channels {order[0]}"


def wrong_axes(declared: m.Tensor, sizes: Sequence[int]) -> list[int]:
    """Return the axes whose sizes the program does not allow. The number of axes must be that of the program."""
    fixed = declared.is_static
    bounded = declared.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_BOUND
    return [
        axis
        for axis, (size, most) in enumerate(zip(sizes, declared.sizes, strict=True))
        if (fixed and size != most) or (bounded and size > most)
    ]


def size_hint(declared: m.Tensor, sizes: Sequence[int]) -> str:
    """Return a hint for a value with wrong sizes. It names the expected sizes."""
    order = _channel_order(declared, sizes)
    if order is None:
        return f"pass an array of {wanted(declared)}"
    return f"pass an array of {wanted(declared)}: `array.transpose{order[1]}`"


def _axes_text(declared: m.Tensor, sizes: Sequence[int]) -> str:
    before = "not" if declared.is_static else "but at most"
    wrong = wrong_axes(declared, sizes)
    return ", ".join(f"axis {axis} is {sizes[axis]}, {before} {declared.sizes[axis]}" for axis in wrong)


def _channel_order(declared: m.Tensor, sizes: Sequence[int]) -> tuple[str, tuple[int, ...]] | None:
    """Return the order of a value's axes if it is an image whose channels are at the wrong end, or else None.

    The order is ``first`` or ``last``, with the axes of the transposition that corrects it. The sizes of a batch are
    ignored: the first of four axes.
    """
    axes = len(declared.sizes)
    if len(sizes) != axes or axes not in (3, 4) or not wrong_axes(declared, sizes):
        return None
    batch = tuple(range(axes - 3))
    for order, image in (("first", (1, 2, 0)), ("last", (2, 0, 1))):
        moved = (*batch, *(axis + len(batch) for axis in image))
        rest = [axis for axis in wrong_axes(declared, [sizes[axis] for axis in moved]) if axis not in batch]
        changed = [axis for axis in wrong_axes(declared, sizes) if axis not in batch]
        if changed and not rest:
            return order, moved
    return None
