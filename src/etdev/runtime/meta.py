"""What a method needs and takes, known before it is loaded: ExecuTorch's ``MethodMeta``."""

from __future__ import annotations

from dataclasses import dataclass

from etdev.devices import Device
from etdev.errors import UsageError
from etdev.program import model as m


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """An input or output that is a tensor."""

    sizes: tuple[int, ...]
    """In elements; upper bounds of a dynamic one."""
    dim_order: tuple[int, ...]
    scalar_type: m.ScalarType
    dynamic: bool
    is_memory_planned: bool
    """Does the method bring its memory?"""
    device: Device
    nbytes: int


class MethodMeta:
    """What a method's table in the file says. Buffers are counted from 0, as in C++: the file's entry 0 is not one."""

    def __init__(self, plan: m.ExecutionPlan) -> None:
        self._plan = plan

    def name(self) -> str:
        """Of the method."""
        return self._plan.name

    def num_memory_planned_buffers(self) -> int:
        """How many planned buffers it needs."""
        return max(len(self._plan.non_const_buffer_sizes) - 1, 0)

    def memory_planned_buffer_size(self, index: int) -> int:
        """Bytes of a planned buffer."""
        return self._plan.non_const_buffer_sizes[self._checked(index)]

    def memory_planned_buffer_device(self, index: int) -> Device:
        """Where a planned buffer has to be; the host, if the file has no table of devices."""
        return self._plan.buffer_device(self._checked(index))

    def num_inputs(self) -> int:
        """How many inputs it takes, numbers and tensors."""
        return len(self._plan.inputs)

    def num_outputs(self) -> int:
        """How many outputs it gives."""
        return len(self._plan.outputs)

    def input_tensor_meta(self, index: int) -> TensorMeta:
        """What an input is. An error if it is no tensor."""
        return self._tensor(self._plan.inputs, index, "input")

    def output_tensor_meta(self, index: int) -> TensorMeta:
        """What an output is. An error if it is no tensor."""
        return self._tensor(self._plan.outputs, index, "output")

    def _checked(self, index: int) -> int:
        """The buffer's index in the file."""
        _item(range(self.num_memory_planned_buffers()), index, f"planned buffer of method {self._plan.name!r}")
        return index + 1

    def _tensor(self, values: tuple[int, ...], index: int, what: str) -> TensorMeta:
        tensor = self._plan.values[_item(values, index, f"{what} of method {self._plan.name!r}")]
        if not isinstance(tensor, m.Tensor):
            raise UsageError(f"{what} {index} of method {self._plan.name!r} is a {type(tensor).__name__}, no tensor")
        return TensorMeta(
            sizes=tensor.sizes,
            dim_order=tensor.dim_order,
            scalar_type=tensor.scalar_type,
            dynamic=tensor.shape_dynamism is not m.TensorShapeDynamism.STATIC,
            is_memory_planned=tensor.allocation_info is not None,
            device=tensor.device,
            nbytes=tensor.nbytes,
        )


def _item(items: tuple[int, ...] | range, index: int, what: str) -> int:
    if not 0 <= index < len(items):
        raise UsageError(f"there is no {what} with the index {index}", hint=f"there are {len(items)}, from 0 on")
    return items[index]
