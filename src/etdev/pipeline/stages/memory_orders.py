"""Orders of the dimensions of tensors in memory, and constants in orders that ExecuTorch does not support.

ExecuTorch supports only contiguous and channels-last order. This module calls all other orders *odd*. A constant is in
odd order if it is transposed, or expanded without a copy. A channels-last constant with one channel is also in odd
order: its strides do not show channels-last order, so a file would state an order such as (0, 2, 1, 3).

ExecuTorch 1.4.1 and 1.5.1 store constants of odd order in contiguous order, but do not reorder other tensors. As a
result, the program fails or computes wrong values.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

_CHANNELS_LAST = [0, 2, 3, 1]


def make_constants_contiguous(program: ExportedProgram) -> list[Node]:
    """Make constants and states contiguous unless they are in channels-last order.

    Return the placeholders of the changed tensors. The metadata of the ops does not change. Do nothing if the graph
    contains an ``as_strided`` op.
    """
    return [] if _uses_strides(program) else list(_made_contiguous(program))


def _uses_strides(program: ExportedProgram) -> bool:
    return any("as_strided" in str(node.target) for node in program.graph.nodes if node.op == "call_function")


def _made_contiguous(program: ExportedProgram) -> Iterator[Node]:
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    for node in program.graph.find_nodes(op="placeholder"):
        name = names.get(node.name)
        if name is None or not is_odd(node.meta["val"]):
            continue
        node.meta["val"] = contiguous_like(node.meta["val"])
        # Programs of other targets may use the same table.
        if name in program.state_dict:
            program._state_dict = {**program.state_dict, name: _contiguous(program.state_dict[name])}
        else:
            program._constants = {**program.constants, name: _contiguous(program.constants[name])}
        yield node


def contiguous_like(value: Any) -> Any:
    """Return a tensor without data that is like ``value``, but in contiguous order."""
    import torch

    # `value.contiguous()` would keep the strides of dimensions of size 1.
    return torch.empty_like(value, memory_format=torch.contiguous_format).requires_grad_(value.requires_grad)


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the strides of a contiguous tensor, including the strides of dimensions of size 1."""
    from torch.nn import Parameter

    found = tensor.detach().contiguous().view(-1).view(tensor.shape)
    return Parameter(found, tensor.requires_grad) if isinstance(tensor, Parameter) else found


def is_plain(value: Any) -> bool:
    """Return whether a tensor is in contiguous order."""
    return order_of(value) == list(range(value.dim()))


def is_odd(value: Any) -> bool:
    """Return whether a tensor is in an order that is neither contiguous nor channels-last."""
    strides = value.stride()
    if any(type(stride) is int and not stride for stride in strides):
        return True
    order = order_of(value)
    return order not in (list(range(value.dim())), _CHANNELS_LAST)


def order_of(value: Any) -> list[int]:
    """Return the dimensions of a tensor from the outermost in memory to the innermost."""
    strides = tuple(value.stride())
    if all(type(stride) is int and stride for stride in strides):
        return list(dim_order(strides))

    # Constants never get here: their orders are read at export, before the build imports executorch.
    from executorch.exir.tensor import dim_order_from_stride

    return list(dim_order_from_stride(strides))


@cache
def dim_order(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions from the outermost in memory to the innermost.

    The result equals that of ExecuTorch's ``dim_order_from_stride`` if all strides are known and not 0.
    """
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))
