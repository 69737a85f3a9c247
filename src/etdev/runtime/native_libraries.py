"""Native libraries: shared libraries with backends and kernels in C++, which the native runtime opens."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from etdev import compat, plugins
from etdev.errors import MissingRequirementError
from etdev.plugins import NATIVE_LIBRARIES

LIBRARY_HINT = (
    "name a library with the missing C++ code in `project.native_libraries`, or with `--native-library` of `etdev run` "
    "and `bench` (docs/extending.md)"
)
"""Advice for a program with operators or delegates that the native runtime lacks."""


def needed_libraries(delegates: Iterable[str], named: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Return the libraries for a program: ``named``, and all libraries that packages register for its delegates.

    ``delegates`` are the ids of the program's delegates. Each library is returned once. Raises
    :class:`~etdev.errors.MissingRequirementError` for a library that is not a file. Raises the same error for a package
    that does not return the path of its library.
    """
    found: dict[str, Path] = {}
    for path in (*named, *map(registered_library, registered_delegates(delegates))):
        found.setdefault(os.path.realpath(path), path)
    for path in found.values():
        if not path.is_file():
            raise MissingRequirementError(
                "there is no such native library" if not path.exists() else "this native library is not a file",
                where=os.fspath(path),
                hint="compile it, or correct the path",
            )
    return tuple(found.values())


def registered_delegates(delegates: Iterable[str]) -> list[str]:
    """Return the sorted delegates for which packages register libraries. This function imports no package.

    Raises :class:`~etdev.errors.MissingRequirementError` for a delegate with several libraries. Raises the same error
    if the native runtime already has the backend of a library.
    """
    known = sorted({*delegates} & {*plugins.names(NATIVE_LIBRARIES)})
    for name in known:
        plugins.check_name(NATIVE_LIBRARIES, name)
    return [name for name in known if name not in NATIVE_LIBRARIES.built_in]


def registered_library(delegate: str) -> Path:
    """Return the path of the library that a package registers for a delegate. The file may be missing.

    Raises :class:`KeyError` for a delegate without such a library, and
    :class:`~etdev.errors.MissingRequirementError` if the package does not return a path.
    """
    function = plugins.load(NATIVE_LIBRARIES, delegate)
    with plugins.translated(NATIVE_LIBRARIES, delegate, MissingRequirementError):
        return Path(function())


def compile_hint() -> str:
    """Return advice for a library that the native runtime cannot use."""
    return (
        f"compile it with the headers and libraries of executorch {compat.installed()}: `find_package(executorch)` and "
        "`executorch::runtime` in CMake (docs/extending.md)"
    )
