"""Order of tensors' dimensions in memory. ExecuTorch reads inputs in the declared order and does not check it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

from etdev.program import model as m

if TYPE_CHECKING:
    import torch

DimOrder: TypeAlias = tuple[int, ...]
"""Numbers of a tensor's dimensions in memory, from the outermost to the innermost."""


def input_orders(plan: m.ExecutionPlan) -> tuple[DimOrder | None, ...]:
    """Return the dimension order that a method declares for each input; None for an input that is not a tensor."""
    values = [plan.values[index] for index in plan.inputs]
    return tuple(value.dim_order if isinstance(value, m.Tensor) else None for value in values)


def arrange_inputs(inputs: Sequence[Any], orders: Sequence[DimOrder | None]) -> list[Any]:
    """Return the inputs of a call, with each tensor's elements in the declared order of memory.

    A value that does not match its declaration is returned as it is, because the runtime reports the mismatch.
    """
    return [_arranged(value, order) for value, order in zip_longest(inputs, orders[: len(inputs)])]


def _arranged(value: Any, order: DimOrder | None) -> Any:
    if order is None or not hasattr(value, "data_ptr") or value.dim() != len(order):
        return value
    return to_memory_order(value, order)


def to_memory_order(tensor: torch.Tensor, dim_order: DimOrder) -> torch.Tensor:
    """Return a contiguous tensor of the same shape, whose bytes are the elements of ``tensor`` in ``dim_order``.

    Unless the order is row-major, an element's index in the result differs from its index in ``tensor``.
    """
    return tensor.permute(dim_order).contiguous().reshape(tensor.shape)


def from_memory_order(tensor: torch.Tensor, dim_order: DimOrder) -> torch.Tensor:
    """Return a contiguous row-major tensor, given a tensor whose bytes are the elements in ``dim_order``.

    This is the inverse of :func:`to_memory_order`.
    """
    sizes = [tensor.shape[dim] for dim in dim_order]
    back = [dim_order.index(dim) for dim in range(tensor.dim())]
    return tensor.contiguous().reshape(sizes).permute(back).contiguous()
