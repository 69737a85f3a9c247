"""Reasons why a check did not run, which reports and commands recognize."""

from __future__ import annotations

NO_LIMIT = "the config sets no limit"
NO_METRIC = "the config names no metric"
NO_DEVICES = "the program has no memory on devices"
NO_ETHOS_U = "the program has no delegate of Ethos-U"
NOT_VERIFIED = "verification was turned off"
NOTHING_TO_ASK = (NO_LIMIT, NO_METRIC, NO_DEVICES, NO_ETHOS_U)
"""Reasons why a check had nothing to check and did not run."""
