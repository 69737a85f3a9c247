"""Random inputs for a program that has only its file, without a config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etdev.errors import UsageError
from etdev.pipeline.project.torch_tensors import random_tensor
from etdev.program import model as m
from etdev.runtime.interpreter.layout import torch_dtype

if TYPE_CHECKING:
    import torch

_MOST_ELEMENTS = 1 << 28
"""Maximum number of elements of one input; needed because a file may state any size."""


def random_inputs(plan: m.ExecutionPlan, seed: int) -> tuple[Any, ...]:
    """Return random inputs of the types and largest sizes that the program states, in the order of its inputs.

    The same seed produces the same inputs. Floats are normally distributed. Integers are zero: they may be indices, and
    zero is valid for every table. An input that is not a tensor gets the value in the file. Raises
    :class:`~etdev.errors.UsageError` for an input without a maximum size, or with too many elements.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    return tuple(
        _random(plan, position, value, generator)
        for position, value in enumerate(plan.values[index] for index in plan.inputs)
    )


def _random(plan: m.ExecutionPlan, position: int, value: m.Value, generator: torch.Generator) -> Any:
    if not isinstance(value, m.Tensor):
        return m.plain_value(value)
    _require_bound(plan, position, value)
    return random_tensor(value.sizes, torch_dtype(value.scalar_type), generator)


def _require_bound(plan: m.ExecutionPlan, position: int, tensor: m.Tensor) -> None:
    where = f"input {position} of method {plan.name!r}"
    if tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND:
        raise UsageError(
            f"{where} has no maximum size, so etdev cannot make a random input", hint="pass a value: --input"
        )
    if tensor.nbytes // tensor.scalar_type.itemsize > _MOST_ELEMENTS:
        raise UsageError(
            f"{where} has {tensor.sizes} elements, too many for a random input", hint="pass a value: --input"
        )
