"""The parts of an XNNPACK delegate's blob that etdev reads.

A blob consists of a header, a flatbuffer (the table ``XNNGraph``) and constant data. Source:
``backends/xnnpack/serialization/runtime_schema.fbs`` and ``backends/xnnpack/runtime/XNNHeader.cpp`` of executorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from etdev.program.blob import Blob
from etdev.program.decode import Decoder
from etdev.program.flaw import FlawError
from etdev.program.schema import Field, Many, Scalar, Scalars, Table, Text, table

HEADER = Struct("<4x4sHIIIQ")
MAGIC = b"XH00"


@dataclass(frozen=True, slots=True)
class XnnpackGraph:
    """Inputs, outputs and constants of a delegate."""

    input_ids: tuple[int, ...]
    """The first arguments of a call."""
    output_ids: tuple[int, ...]
    """The other arguments of a call."""
    constant_data: tuple[str, ...]
    """Name of each constant in the program's named data; empty for a constant in the blob."""


_CONSTANT = Table("ConstantDataOffset", lambda key: key, lambda key: (key,), (Field(2, "named_key", Text()),))
_IDS = Scalars(Scalar("I"))
GRAPH = table(
    XnnpackGraph, Field(4, "input_ids", _IDS), Field(5, "output_ids", _IDS), Field(8, "constant_data", Many(_CONSTANT))
)


def xnnpack_graph(blob: Blob) -> XnnpackGraph | None:
    """Return the graph in a delegate's blob, or None if the blob is not an XNNPACK graph."""
    if len(blob) < HEADER.size:
        return None
    magic, _, start, size, _, _ = HEADER.unpack_from(blob.cut(0, HEADER.size).view)
    if magic != MAGIC or start + size > len(blob) or size < HEADER.size:
        return None
    try:
        graph: XnnpackGraph = Decoder(blob.cut(start, size)).root(GRAPH, 0)
    except FlawError:
        return None
    return graph
