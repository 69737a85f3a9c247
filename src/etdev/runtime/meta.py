"""Metadata of a method, available before the method is loaded; the interface is that of ExecuTorch's ``MethodMeta``."""

from __future__ import annotations

from dataclasses import dataclass

from etdev.devices import Device
from etdev.errors import UsageError
from etdev.program import model as m


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Metadata of a tensor that is an input or output."""

    sizes: tuple[int, ...]
    """Size of each dimension; the maximum for dynamic dimensions."""
    dim_order: tuple[int, ...]
    scalar_type: m.ScalarType
    dynamic: bool
    is_memory_planned: bool
    """True if the tensor is in a planned buffer; False if the caller provides the memory."""
    device: Device
    nbytes: int


class MethodMeta:
    """Metadata of a method, read from the file.

    Planned buffers are numbered from 0, as in C++. In the file, the first buffer has index 1.
    """

    def __init__(self, plan: m.ExecutionPlan) -> None:
        self._plan = plan

    def name(self) -> str:
        """Return the name of the method."""
        return self._plan.name

    def num_memory_planned_buffers(self) -> int:
        """Return the number of planned buffers."""
        return max(len(self._plan.non_const_buffer_sizes) - 1, 0)

    def memory_planned_buffer_size(self, index: int) -> int:
        """Return the size of a planned buffer in bytes."""
        return self._plan.non_const_buffer_sizes[self._checked(index)]

    def memory_planned_buffer_device(self, index: int) -> Device:
        """Return the device of a planned buffer; the host if the file has no table of devices."""
        return self._plan.buffer_device(self._checked(index))

    def num_inputs(self) -> int:
        """Return the number of inputs, including inputs that are not tensors."""
        return len(self._plan.inputs)

    def num_outputs(self) -> int:
        """Return the number of outputs."""
        return len(self._plan.outputs)

    def input_tensor_meta(self, index: int) -> TensorMeta:
        """Return the metadata of an input. Raises :class:`~etdev.errors.UsageError` if the input is not a tensor."""
        return self._tensor(self._plan.inputs, index, "input")

    def output_tensor_meta(self, index: int) -> TensorMeta:
        """Return the metadata of an output. Raises :class:`~etdev.errors.UsageError` if the output is not a tensor."""
        return self._tensor(self._plan.outputs, index, "output")

    def _checked(self, index: int) -> int:
        """Return the file's index for the planned buffer ``index``; raise an error if the buffer does not exist."""
        _item(range(self.num_memory_planned_buffers()), index, f"planned buffer of method {self._plan.name!r}")
        return index + 1

    def _tensor(self, values: tuple[int, ...], index: int, what: str) -> TensorMeta:
        tensor = self._plan.values[_item(values, index, f"{what} of method {self._plan.name!r}")]
        if not isinstance(tensor, m.Tensor):
            raise UsageError(f"{what} {index} of method {self._plan.name!r} is a {type(tensor).__name__}, not a tensor")
        return TensorMeta(
            sizes=tensor.sizes,
            dim_order=tensor.dim_order,
            scalar_type=tensor.scalar_type,
            dynamic=not tensor.is_static,
            is_memory_planned=tensor.allocation_info is not None,
            device=tensor.device,
            nbytes=tensor.nbytes,
        )


def _item(items: tuple[int, ...] | range, index: int, what: str) -> int:
    if not 0 <= index < len(items):
        raise UsageError(
            f"there is no {what} with index {index}", hint=f"use an index of 0 or more and below {len(items)}"
        )
    return items[index]
