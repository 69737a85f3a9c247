"""Records of compiled delegates, which a sidecar contains in addition to notes on methods."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from etdev.program.flaw import FlawError

_LEVEL = 6
"""Level of compression. It is fixed, so that equal records yield equal bytes."""
_LARGEST = 1 << 31
"""Maximum size of decompressed data in bytes."""


@dataclass(frozen=True, slots=True)
class DelegateRecord:
    """Facts about a delegate's blob that only the compiler of the blob knows."""

    memory: Mapping[str, int] = field(default_factory=dict)
    """Maps the name of a memory that the compiler reports, such as ``scratch``, to its size in bytes."""
    graph: bytes = b""
    """The graph from which the blob was compiled, in the compiler's own format."""
    reference: bytes = b""
    """A program with one method, ``forward``, that computes the delegate's ops with kernels; empty if unknown.

    The program's inputs and outputs are those of the delegate's calls.
    """


def encode_record(record: DelegateRecord) -> dict[str, Any]:
    """Return the JSON of a record."""
    return {
        "memory": dict(sorted(record.memory.items())),
        "graph": _packed(record.graph),
        "reference": _packed(record.reference),
    }


def unpack(content: Any) -> bytes:
    """Decode the data of a record. Raises :class:`FlawError` for data that :func:`encode_record` cannot write."""
    if not isinstance(content, str):
        raise FlawError("expected compressed data in base64")
    try:
        reader = zlib.decompressobj()
        found = reader.decompress(base64.b64decode(content, validate=True), _LARGEST)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise FlawError(f"expected compressed data in base64: {error}") from error
    if not reader.eof or reader.unused_data:
        raise FlawError("the data is incomplete, larger than 2 GiB when decompressed, or followed by other data")
    return found


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, _LEVEL)).decode()
