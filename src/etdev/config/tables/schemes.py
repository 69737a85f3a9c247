"""Tables of the config for quantization: one model for each scheme of ``[quantize.X]``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from etdev.config.table import Table
from etdev.config.types import Entry, Identifier, Many, Text

EthosU = Literal[
    "ethos-u55-32",
    "ethos-u55-64",
    "ethos-u55-128",
    "ethos-u55-256",
    "ethos-u65-256",
    "ethos-u65-512",
    "ethos-u85-128",
    "ethos-u85-256",
    "ethos-u85-512",
    "ethos-u85-1024",
    "ethos-u85-2048",
]
"""Configurations of Ethos-U that Vela compiles for: the processor, and its multiplications per cycle."""

BACKEND_SCHEMES: Mapping[str, str] = {"ethos-u": "arm-ethos-u", "cortex-m": "cortex-m"}
"""Maps each backend that takes only quantized ops to the scheme that quantizes for it.

For a target with several of these backends, the first one in this table decides: `cortex-m` takes what `ethos-u` left.
"""

LEAST_GROUP = 32
"""Smallest `group_size` of `8da4w`."""


class Pt2e(Table):
    """Quantization of the exported graph by PT2E; the base class of schemes with a quantizer of ExecuTorch."""

    scheme: str
    calibration: Entry | dict[Identifier, Entry] | None = Field(
        None,
        description="`module:callable` that returns calibration inputs, in the form of a method's `samples`; "
        "with several methods, a table from method to callable. Required, unless `dynamic` is true.",
    )

    @property
    def needs_calibration(self) -> bool:
        """True if the scheme requires calibration inputs."""
        return True


_KEEP_FLOAT: Any = Field(
    (),
    description="Modules that stay in float, with the modules inside: patterns of paths, such as `head` or "
    "`layers.*.mlp`. For modules that lose too much accuracy. A ReLU right behind a quantized layer belongs to that "
    "layer.",
)


class Pt2eXnnpack(Pt2e):
    """Static or dynamic int8 quantization by PT2E with the XNNPACK quantizer, after export."""

    scheme: Literal["pt2e-xnnpack"] = Field(description="The quantization scheme.")
    per_channel: bool = Field(
        True, description="True for one scale for each output channel of a weight, false for one scale for each tensor."
    )
    dynamic: bool = Field(False, description="True to compute activation scales at run time (linear layers only).")
    keep_float: Many[Text] = _KEEP_FLOAT

    @property
    def needs_calibration(self) -> bool:
        return not self.dynamic


class ArmEthosU(Pt2e):
    """Static int8 quantization by PT2E with Arm's quantizer for Ethos-U, after export."""

    scheme: Literal["arm-ethos-u"] = Field(description="The quantization scheme.")
    target: EthosU = Field(
        description="Processor, as in the options of the backend `ethos-u`. Ethos-U55 and Ethos-U85 need different "
        "forms of some ops, such as softmax."
    )
    per_channel: bool = Field(
        True, description="True for one scale for each output channel of a weight, false for one scale for each tensor."
    )


class CortexM(Pt2e):
    """Static int8 quantization by PT2E with ExecuTorch's quantizer for Cortex-M, after export."""

    scheme: Literal["cortex-m"] = Field(description="The quantization scheme.")


class Int8DynamicInt4Weight(Table):
    """`8da4w`: torchao's int8 dynamic activations and grouped int4 weights, on linear layers, before export.

    Embeddings can have integer weights, too.
    """

    scheme: Literal["8da4w"] = Field(description="The quantization scheme.")
    group_size: int = Field(
        32,
        ge=LEAST_GROUP,
        multiple_of=LEAST_GROUP,
        description="Number of weights with the same scale. Must divide the input width of every linear layer that is "
        "quantized, and the width of every embedding that is.",
    )
    embedding_bits: Literal[4, 8] | None = Field(
        None, description="Number of bits of the weights of embeddings. Omit to keep embeddings in float."
    )
    keep_float: Many[Text] = _KEEP_FLOAT


Scheme = Annotated[Pt2eXnnpack | ArmEthosU | CortexM | Int8DynamicInt4Weight, Field(discriminator="scheme")]


SCHEMES = frozenset(get_args(kind.model_fields["scheme"].annotation)[0] for kind in get_args(get_args(Scheme)[0]))
"""Names of all schemes."""


def integer_backend(names: Collection[object]) -> str | None:
    """Return the backend in ``names`` that decides the scheme of a target; None if each of them takes float ops."""
    return next((name for name in BACKEND_SCHEMES if name in names), None)
