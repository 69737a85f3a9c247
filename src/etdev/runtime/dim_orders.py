"""Order of a tensor's dimensions in memory.

ExecuTorch reads an input in the order that the method declares. It does not check the order of the given tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

from etdev.program import model as m

if TYPE_CHECKING:
    import torch

DimOrder: TypeAlias = tuple[int, ...]
"""Indices of a tensor's dimensions, in the order of memory from the outermost to the innermost."""


def input_orders(plan: m.ExecutionPlan) -> tuple[DimOrder | None, ...]:
    """Return the dimension order that a method declares for each input; None for an input that is not a tensor."""
    values = [plan.values[index] for index in plan.inputs]
    return tuple(value.dim_order if isinstance(value, m.Tensor) else None for value in values)


def arrange_inputs(inputs: Sequence[Any], orders: Sequence[DimOrder | None]) -> list[Any]:
    """Return the inputs of a call. In memory, each tensor has the dimension order that the method declares for it.

    A value that does not match its declaration is returned unchanged, because the runtime reports the mismatch.
    """
    return [_arranged(value, order) for value, order in zip_longest(inputs, orders[: len(inputs)])]


def _arranged(value: Any, order: DimOrder | None) -> Any:
    if order is None or not hasattr(value, "data_ptr") or value.dim() != len(order):
        return value
    return to_memory_order(value, order)


def to_memory_order(tensor: torch.Tensor, dim_order: DimOrder) -> torch.Tensor:
    """Return a contiguous tensor of the same shape, whose memory contains the elements in the order ``dim_order``.

    If this order is not row-major, an element has another index in the result than in ``tensor``.
    """
    return tensor.permute(dim_order).contiguous().reshape(tensor.shape)


def from_memory_order(tensor: torch.Tensor, dim_order: DimOrder) -> torch.Tensor:
    """Return a contiguous row-major tensor with the elements of ``tensor``.

    The bytes of ``tensor`` are in the order ``dim_order``. This function is the inverse of :func:`to_memory_order`.
    """
    sizes = [tensor.shape[dim] for dim in dim_order]
    back = [dim_order.index(dim) for dim in range(tensor.dim())]
    return tensor.contiguous().reshape(sizes).permute(back).contiguous()
