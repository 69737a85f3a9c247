"""What an operator takes and gives, as PyTorch knows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from etdev.program.inplace import Donor


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operator."""

    name: str
    kind: str
    """Its type as PyTorch's schema has it: ``Tensor``, ``Optional[int]``."""
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Schema:
    """What an operator takes and gives."""

    operator: str
    """``aten::add.out``."""
    arguments: tuple[Argument, ...]
    outputs: tuple[Argument, ...]

    def donors(self) -> Iterator[Donor]:
        """Each argument that is a tensor, with each output that is one."""
        for position, argument in enumerate(self.arguments):
            if argument.kind in ("Tensor", "Optional[Tensor]"):
                yield from (Donor(position, out) for out, given in enumerate(self.outputs) if given.kind == "Tensor")


def operator_schema(operator: str) -> Schema | None:
    """The schema that PyTorch knows an operator by; None if it knows none."""
    import torch

    namespace, _, rest = operator.partition("::")
    name, _, overload = rest.partition(".")
    try:
        found: Any = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")._schema
    except (AttributeError, RuntimeError):
        return None
    given = [
        (item.is_out, Argument(item.name, str(item.type), item.has_default_value(), item.default_value))
        for item in found.arguments
    ]
    return Schema(
        operator,
        tuple(argument for is_out, argument in given if not is_out),
        tuple(argument for is_out, argument in given if is_out),
    )
