"""Notes on targets that reuse results of an earlier build."""

from __future__ import annotations

UNCHANGED = "unchanged: taken from the cache"
LINKED_AGAIN = "linked again: the object program of an earlier build is reused"
"""Note on a target whose object program comes from an earlier build."""
QUANTIZED_AGAIN = (
    "quantized again for verification: the cache lacks the quantized model's outputs for some of the calls"
)
"""Note on a reused object program whose model had to be quantized again, only for verification."""
