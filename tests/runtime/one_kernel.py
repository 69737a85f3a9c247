"""Programs of one kernel call, made from the values that it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from etdev.program import Program
from etdev.program import model as m
from etdev.runtime.interpreter.kernels import resolve
from etdev.runtime.interpreter.layout import scalar_type_of
from support.files import method, program

_GAP = 64
_KINDS: dict[type, Callable[[Any], m.Value]] = {
    bool: m.Bool,
    int: m.Int,
    float: m.Double,
    str: m.String,
    type(None): lambda _: m.Null(),
}
"""What a value that is not a tensor becomes in the file."""


class OneKernel:
    """A method that calls one kernel. Tensors among the arguments are inputs, all else is in the file."""

    def __init__(self, operator: str, arguments: Sequence[Any]) -> None:
        name, _, overload = operator.partition(".")
        self.operator = m.Operator(name, overload)
        self.values: list[m.Value] = []
        self.inputs: list[torch.Tensor] = []
        self._positions: list[int] = []
        self._end = 0
        self._arguments = [self._add(value) for value in arguments]
        self._given = list(arguments)

    def program(self, *outs: torch.Tensor) -> Program:
        """The program, with outputs like those tensors; without any, like those that torch gives."""
        found = list(outs) or self._results()
        numbers = [self._tensor(out) for out in found]
        several = len(found) > 1 or self._lists()
        tail = [self._value(m.TensorList(tuple(numbers)))] if several else numbers[:1]
        before = tail if self._lists() else numbers
        call = m.KernelCall(0, (*self._arguments, *before, *tail))
        return program(method(self.values, [call], inputs=self._positions, outputs=numbers, operators=(self.operator,)))

    def _lists(self) -> bool:
        return self.operator.name in ("aten::split_copy", "aten::split_with_sizes_copy", "aten::unbind_copy")

    def _results(self) -> list[torch.Tensor]:
        kernel = resolve(self.operator)
        assert kernel is not None
        positional, named = [], {}
        for parameter, value in zip(kernel.parameters, self._given, strict=True):
            if parameter.keyword and not parameter.is_ignored:
                named[parameter.name] = value
            elif not parameter.is_ignored:
                positional.append(value)
        found = kernel.function(*positional, **named)
        return list(found) if isinstance(found, list | tuple) else [found]

    def _value(self, value: m.Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _tensor(self, tensor: torch.Tensor) -> int:
        order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), dim))
        place = m.AllocationDetails(1, self._end)
        self._end += -(-max(tensor.numel() * tensor.element_size(), 1) // _GAP) * _GAP
        return self._value(
            m.Tensor(scalar_type_of(tensor.dtype), tuple(tensor.shape), tuple(order), allocation_info=place)
        )

    def _add(self, value: Any) -> int:
        if isinstance(value, list):
            return self._value(self._list(value))
        if isinstance(value, torch.Tensor):
            number = self._tensor(value)
            self.inputs.append(value)
            self._positions.append(number)
            return number
        if isinstance(value, torch.dtype):
            value = int(scalar_type_of(value))
        return self._value(_KINDS[type(value)](value))

    def _list(self, value: list[Any]) -> m.Value:
        if isinstance(value[0], float):
            return m.DoubleList(tuple(value))
        if isinstance(value[0], int):
            return m.IntList(tuple(self._add(item) for item in value))
        kind = m.OptionalTensorList if self.operator.name.startswith("aten::index") else m.TensorList
        return kind(tuple(self._add(item) for item in value))
