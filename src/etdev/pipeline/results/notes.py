"""Notes on targets whose build reuses an earlier build's object program."""

from __future__ import annotations

UNCHANGED = "unchanged: taken from the cache"
LINKED_AGAIN = "linked again: nothing before the link has changed since it was exported"
"""Note on a target whose object program comes from an earlier build."""
QUANTIZED_AGAIN = "quantized again for verification: the cache lacks the quantized model's outputs on some of its calls"
"""Note on such a target if its model has to be quantized again, for verification only."""
