"""Amount of text that a command prints about each target or file: ``-q``, nothing, ``-v`` or ``-vv``."""

from __future__ import annotations

from enum import IntEnum


class Detail(IntEnum):
    """Amount of text about each target or file."""

    LINE = 0
    """One line, and failed checks."""
    SHORT = 1
    """File, planned memory, checks; failed checks in full."""
    FULL = 2
    """All figures and the answer of each check."""
    DECISIONS = 3
    """What the linker decided about each copy and each output, too."""


def wanted_detail(*, quiet: bool, verbose: int) -> Detail:
    """Return the amount of text that ``-q`` and ``-v`` ask for."""
    return Detail.LINE if quiet else Detail(min(Detail.SHORT + verbose, Detail.DECISIONS))
