"""Arguments and outputs of an operator, from PyTorch's schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from etdev.program.analysis.inplace import Donor


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operator."""

    name: str
    kind: str
    """Type in the notation of PyTorch's schema, such as ``Tensor`` or ``Optional[int]``."""
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Schema:
    """Arguments and outputs of an operator."""

    operator: str
    """Name of the operator, such as ``aten::add.out``."""
    arguments: tuple[Argument, ...]
    outputs: tuple[Argument, ...]

    def donors(self) -> Iterator[Donor]:
        """Yield each pair of a tensor argument and a tensor output. A trial tests if the two may share bytes."""
        for position, argument in enumerate(self.arguments):
            if argument.kind in ("Tensor", "Optional[Tensor]"):
                yield from (Donor(position, out) for out, given in enumerate(self.outputs) if given.kind == "Tensor")


def operator_schema(operator: str) -> Schema | None:
    """Return PyTorch's schema of an operator, or None if the operator is not registered in PyTorch."""
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
