"""Options of the backend ``reference``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from etdev.config.table import Table
from etdev.config.types import Expected, Many, OperatorName, Text


def refuse_no_range(value: tuple[float, ...]) -> tuple[float, ...]:
    """Return the two numbers. Raise :class:`ValueError` if they are not a range from 0 to 1."""
    if len(value) != 2 or not 0 <= value[0] < value[1] <= 1:
        raise ValueError("not a range from 0 to 1")
    return value


Part = Annotated[
    Many[float], AfterValidator(refuse_no_range), Expected("two numbers from 0 to 1, the smaller one first")
]


class ReferenceOptions(Table):
    """Options for the ops that it takes, and for the weights and state that its delegates own."""

    ops: Literal["all"] | Many[OperatorName] = Field(
        "all",
        description="Take only these operators, named as in `inplace.add`. Default: all that have a kernel. What "
        "ExecuTorch decomposes (`linear`) is kept whole if this is the target's only partitioner.",
    )
    modules: Many[Text] = Field(
        (),
        description="Take only ops of modules whose path matches one of these patterns: `layers.0`, `layers.*.mlp`. "
        "What is inside a module that matches is taken too. Default: of all.",
    )
    part: Part = Field(
        (0.0, 1.0),
        description="Take only ops of this part of each graph in the order in which they run: `[0.0, 0.5]` is the "
        "first half. Delegates that are there already count as many ops as are in them.",
    )
    own_weights: bool = Field(
        True, description="Weights that only delegates use are in them; otherwise they are arguments of the calls."
    )
    own_state: bool = Field(
        True,
        description="A buffer that one delegate alone reads and changes is in it; otherwise it stays in the method, "
        "where several delegates may use it.",
    )
