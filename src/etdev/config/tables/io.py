"""Tables of the config for inputs and outputs of a target's methods."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from etdev.config.table import Table
from etdev.config.types import Identifier, Many, Position

Owner = Literal["host", "device", "caller"]
"""Owner of the memory of an input or output.

With ``host``, the program's memory plan includes the tensor, on the host. With ``device``, the caller allocates the
memory, on the device that uses or computes the tensor. With ``caller``, the caller allocates the memory on the host.
"""


class MethodIo(Table):
    """Memory and data types of a method's inputs and outputs.

    Each input and each output has an owner:

    * `host`: The program's memory plan includes the tensor, on the host.
    * `device`: The caller allocates the memory, on the device of the delegates that use or compute the tensor. The
      tensor is neither copied nor planned.
    * `caller`: The caller allocates the memory on the host. The tensor is not planned.
    """

    inputs: Owner | dict[Identifier, Owner] = Field(
        "host", description="Owner of all inputs, or a table with owners by the input's name. Other inputs are `host`."
    )
    outputs: Owner | dict[Position, Owner] = Field(
        "host",
        description='Owner of all outputs, or a table with owners by the output\'s position: `{ 0 = "caller" '
        "}`. Other outputs are `host`.",
    )
    quantized: Literal["all"] | Many[Identifier] = Field(
        (),
        description="Inputs and outputs that the program takes and returns as quantized integers instead of floats: "
        "`all`, or a list of names. The first output is `output0`. Requires static quantization.",
    )
