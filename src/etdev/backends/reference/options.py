"""Options of the backend ``reference``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from etdev.config.table import Table
from etdev.config.types import Expected, Many, OperatorName, Text


def refuse_no_range(value: tuple[float, ...]) -> tuple[float, ...]:
    """Return ``value``. Raise :class:`ValueError` unless it is two increasing numbers from 0 to 1."""
    if len(value) != 2 or not 0 <= value[0] < value[1] <= 1:
        raise ValueError("not a range within 0 to 1")
    return value


Part = Annotated[
    Many[float], AfterValidator(refuse_no_range), Expected("two numbers from 0 to 1, the smaller one first")
]


class ReferenceOptions(Table):
    """Options for the ops that the backend takes, and for the weights and state that its delegates own."""

    ops: Literal["all"] | Many[OperatorName] = Field(
        "all",
        description="Take only these operators, in the notation of `inplace.add`. Default: all operators that have a "
        "kernel. Operators that ExecuTorch decomposes (`linear`) stay whole if this is the target's only partitioner.",
    )
    modules: Many[Text] = Field(
        (),
        description="Take only ops of modules whose path matches one of these patterns: `layers.0`, `layers.*.mlp`. "
        "Ops inside a matching module are taken, too. Default: all modules.",
    )
    part: Part = Field(
        (0.0, 1.0),
        description="Take only ops in this part of each graph, in the order of execution: `[0.0, 0.5]` is the first "
        "half. An existing delegate counts as the ops inside it.",
    )
    own_weights: bool = Field(
        True,
        description="If true, delegates contain the weights that only delegates use. Otherwise, these weights are "
        "arguments of the calls.",
    )
    own_state: bool = Field(
        True,
        description="If true, a delegate contains each buffer that only this delegate reads and changes. Otherwise, "
        "the buffer stays in the method, where several delegates may use it.",
    )
