"""Random inputs for a program, derived only from the program's file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etdev.errors import UsageError
from etdev.execution.float_ends import quantize
from etdev.pipeline.project.torch_tensors import random_tensor
from etdev.program import model as m
from etdev.program.analysis.quantized_ends import QuantizedEnd
from etdev.runtime.interpreter.layout import torch_dtype

if TYPE_CHECKING:
    import torch

_MOST_ELEMENTS = 1 << 28
"""Maximum number of elements of an input. Without this limit, a file could request any amount of memory."""


def random_inputs(plan: m.ExecutionPlan, seed: int, ends: Sequence[QuantizedEnd] = ()) -> tuple[Any, ...]:
    """Return random inputs for a method, with the types and the largest sizes that the program states.

    The same seed produces the same inputs. Floats are normally distributed. ``ends`` contains the method's quantized
    inputs. The integers of a quantized input represent normally distributed floats. All other integers are zero,
    because they may be indices, and zero is a valid index for every table. An input that is not a tensor has the value
    stored in the program. Raises :class:`~etdev.errors.UsageError` for an input without a maximum size, or with too
    many elements.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    quantized = {end.position: end for end in ends if end.side == "input"}
    return tuple(
        _random(plan, position, value, generator, quantized.get(position))
        for position, value in enumerate(plan.values[index] for index in plan.inputs)
    )


def _random(
    plan: m.ExecutionPlan, position: int, value: m.Value, generator: torch.Generator, end: QuantizedEnd | None
) -> Any:
    if not isinstance(value, m.Tensor):
        return m.plain_value(value)
    _require_bound(plan, position, value)
    if end is not None:
        return quantize(end, random_tensor(value.sizes, torch_dtype(m.ScalarType.FLOAT), generator))
    return random_tensor(value.sizes, torch_dtype(value.scalar_type), generator)


def _require_bound(plan: m.ExecutionPlan, position: int, tensor: m.Tensor) -> None:
    where = f"input {position} of method {plan.name!r}"
    if tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND:
        raise UsageError(
            f"{where} has no maximum size, so etdev cannot generate a random value", hint="pass a value with `--input`"
        )
    if tensor.nbytes // tensor.scalar_type.itemsize > _MOST_ELEMENTS:
        raise UsageError(
            f"{where} has the shape {list(tensor.sizes)}, which is too large for a random value",
            hint="pass a value with `--input`",
        )
