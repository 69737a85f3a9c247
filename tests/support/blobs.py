"""Blobs of delegates."""

from __future__ import annotations

from etdev.program.delegates.xnnpack_graph import GRAPH, HEADER, MAGIC, XnnpackGraph
from etdev.program.encode import encode


def xnnpack(*names: str, inputs: int = 0, outputs: int = 0) -> bytes:
    """Build a graph of XNNPACK with constants of these names; an empty name means data inside the blob."""
    ends = tuple(range(inputs)), tuple(range(inputs, inputs + outputs))
    graph, _ = encode(GRAPH, XnnpackGraph(*ends, names), identifier=b"XN01", inline_alignment=1)
    start = -(-HEADER.size // 16) * 16
    head = HEADER.pack(MAGIC, HEADER.size, start, len(graph), start + len(graph), 0)
    return head.ljust(start, b"\0") + bytes(graph)
