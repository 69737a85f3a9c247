"""Backend ``reference``: delegates with a nested ``.pte`` as blob, for device programs without vendor hardware.

It is also the model of a backend for contributors. This module has what ``validate`` and ``doctor`` need, and imports
neither torch nor executorch. :mod:`.partitioner` chooses the ops, :mod:`.nested` creates the blob.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from etdev.backends.base import (
    BUILD_EXTRA,
    Availability,
    CompileSpecValue,
    OptionIssue,
    SpecIssue,
    find_packages,
)
from etdev.config.table import Table
from etdev.config.types import Expected, Many, OperatorName, Text
from etdev.devices import DeviceType

DELEGATE_ID = "EtdevReferenceBackend"


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


class Reference:
    """Backend that lowers through etdev's own partitioner."""

    name = "reference"
    summary = "delegates for any device that `etdev run` and `verify` execute; no ExecuTorch runtime runs them"
    device_types = tuple(kind.name.lower() for kind in DeviceType)
    delegate_ids = (DELEGATE_ID,)
    options = ReferenceOptions
    compute_dtype = "float32"
    dynamic_shapes = True
    methods_apart = True

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        for key in specs:
            message = (
                f"the backend {self.name!r} reads no compile specs but the device's, so {key!r} would have no effect"
            )
            yield SpecIssue(key, message, 'name the device with the key `device`, such as "cuda:0"')

    def check_options(self, options: ReferenceOptions) -> Iterable[OptionIssue]:
        from etdev.backends.reference.names import unknown_names

        return () if options.ops == "all" else unknown_names(options.ops)

    def availability(self) -> Availability:
        return find_packages("torch", "executorch", remedy=BUILD_EXTRA)

    def partitioner(self, options: ReferenceOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        from etdev.backends.reference.partitioner import ReferencePartitioner

        return ReferencePartitioner(options, specs)


backend = Reference()
