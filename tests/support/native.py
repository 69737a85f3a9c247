"""The native runtime for tests: skipped with the reason where it cannot be compiled."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from etdev.errors import MissingRequirementError
from etdev.program import Program, write
from etdev.runtime.native import host_executable


@cache
def compiled_host() -> Path | str:
    """The executable of the native host, or why there is none. It is compiled into the developer's cache, once for all
    runs of the tests: to be called before the tests set a cache of their own."""
    try:
        return host_executable()
    except MissingRequirementError as error:
        return f"{error.message}: {error.hint}"


def native_host() -> Path:
    """The executable of the native host."""
    found = compiled_host()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def saved(made: Program, folder: Path, name: str = "program.pte") -> Path:
    """A program as a file."""
    file = folder / name
    write(made, file)
    return file
