"""Levels of detail in the output of a command, for ``-q``, for no option, and for ``-v`` and ``-vv``."""

from __future__ import annotations

from enum import IntEnum


class Detail(IntEnum):
    """Level of detail with which a command describes each target or file."""

    LINE = 0
    """One line, the failed checks, the required checks that did not run, and the warnings."""
    SHORT = 1
    """The file, the planned memory, a summary of the checks, and all details of failed checks."""
    FULL = 2
    """All figures, and the result of each check."""
    DECISIONS = 3
    """All figures, the result of each check, and the linker's decision about each copy and each output."""


def wanted_detail(*, quiet: bool, verbose: int) -> Detail:
    """Return the level of detail; ``verbose`` is the number of options ``-v``, and ``quiet`` is the option ``-q``."""
    return Detail.LINE if quiet else Detail(min(Detail.SHORT + verbose, Detail.DECISIONS))
