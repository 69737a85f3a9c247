"""How much a command prints about each target or file: with ``-q``, without an option, with ``-v`` or ``-vv``."""

from __future__ import annotations

from enum import IntEnum


class Detail(IntEnum):
    """How much a command prints about each target or file."""

    LINE = 0
    """One line, and the failed checks."""
    SHORT = 1
    """The file, the planned memory and a summary of the checks, with failed checks in full."""
    FULL = 2
    """All figures and the answer of each check."""
    DECISIONS = 3
    """Also the linker's decision about each copy and each output."""


def wanted_detail(*, quiet: bool, verbose: int) -> Detail:
    """Return how much to print for the given ``-q`` and number of ``-v``."""
    return Detail.LINE if quiet else Detail(min(Detail.SHORT + verbose, Detail.DECISIONS))
