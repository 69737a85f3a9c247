"""Interface through which kernels and handlers access a running method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from etdev.devices import Device
from etdev.program import model as m
from etdev.runtime.interpreter.tensors import RunTensor

if TYPE_CHECKING:
    import torch

    from etdev.runtime.interpreter.poison import Poison


class Values(Protocol):
    """Interface of :class:`~etdev.runtime.interpreter.machine.Machine` for kernels, handlers and calls."""

    plan: m.ExecutionPlan
    home: Device
    """Device that the kernels run on."""
    torch_device: str
    values: list[Any]
    """The method's values, by index."""
    known_sizes: dict[Any, int]
    """Maps the operator and operands of a kernel call to the size of the results in bytes."""
    poison: Poison | None

    def tensor(self, index: int) -> RunTensor: ...

    def tensors_of(self, index: int) -> list[RunTensor]: ...

    def number(self, index: int) -> int | float | bool: ...

    def integers(self, index: int) -> list[int]: ...

    def content(self, index: int) -> Any: ...

    def read(self, tensor: RunTensor) -> torch.Tensor: ...

    def write(self, tensor: RunTensor, content: torch.Tensor, *, convert: bool = False) -> None: ...

    def make_room(self, tensor: RunTensor, sizes: Sequence[int]) -> None: ...
