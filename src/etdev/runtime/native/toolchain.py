"""Tools that compile the native host: ExecuTorch's C++ runtime, CMake and a C++ compiler."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from etdev import compat

NATIVE_EXTRA = 'pip install "etdev[native]"'
_CMAKE = (3, 28)
"""First version of CMake that writes the run-time paths of ExecuTorch's libraries correctly."""
_LAUNCHERS = frozenset({"ccache", "sccache", "distcc", "icecc"})
_CXX_HINT = "set CXX to a C++ compiler, with a launcher such as ccache before it and arguments after it, or unset CXX"
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Missing:
    """Description of a missing tool: the reason for the error, and the remedy."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Tools that compile the native host."""

    package: Path
    """Folder of the package ``executorch``, with ``lib`` and ``share/cmake``."""
    cmake: Path
    compiler: Path
    arguments: tuple[str, ...]
    """Arguments in the variable ``CXX``. Every call of the compiler gets these arguments."""
    launchers: tuple[Path, ...]
    """Programs in the variable ``CXX`` that call the compiler, such as ccache."""
    ninja: Path | None
    """Ninja; None if CMake has to use make."""


COMPILER_HINT = "apt install g++, or name a compiler in CXX"
TOOL_HINTS = frozenset({COMPILER_HINT, NATIVE_EXTRA})
"""Remedies for tools that the user can install."""


@cache
def find_toolchain() -> Toolchain | Missing:
    """Return the tools for the native host, or a :class:`Missing` for the first tool that was not found."""
    if not sys.platform.startswith("linux"):
        return Missing("the native runtime needs Linux", "run it on Linux, for example in a container")
    package = _package()
    if package is None:
        return Missing("executorch is not installed", 'pip install "etdev[build]"')
    if not (package / "lib" / "libexecutorch.so").exists():
        return Missing("the installed executorch has no C++ libraries", compat.INSTALL_SUPPORTED)
    cmake = _cmake()
    if cmake is None:
        return Missing("no CMake of version 3.28 or later was found", NATIVE_EXTRA)
    compiler = _compiler()
    if isinstance(compiler, Missing):
        return compiler
    ninja = _executable("ninja")
    if ninja is None and shutil.which("make") is None:
        return Missing("neither ninja nor make was found", NATIVE_EXTRA)
    return Toolchain(package, cmake, *compiler, ninja)


def _package() -> Path | None:
    spec = importlib.util.find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _cmake() -> Path | None:
    """Return the path of CMake in this environment or on ``PATH``; None if no version is new enough."""
    found = (Path(sys.executable).parent / "cmake", *map(Path, filter(None, [shutil.which("cmake")])))
    return next((path for path in found if path.exists() and _version(path) >= _CMAKE), None)


def _compiler() -> tuple[Path, tuple[str, ...], tuple[Path, ...]] | Missing:
    """Return the compiler, its arguments and its launchers.

    Like CMake, accept a value of ``CXX`` with arguments. A known launcher, such as ccache, may precede the compiler.
    """
    named = os.environ.get("CXX", "").strip()
    if not named:
        found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
        if found is None:
            return Missing("no C++ compiler was found", COMPILER_HINT)
        return Path(found), (), ()
    try:
        words = shlex.split(named)
    except ValueError as error:
        return Missing(f"CXX is {named!r}: {error}", "close the quotation in CXX, or unset CXX")
    count = next((place for place, word in enumerate(words) if Path(word).name not in _LAUNCHERS), len(words))
    if count == len(words):
        return Missing(f"CXX is {named!r}, which does not name a compiler", f'append a compiler: `CXX="{named} g++"`')
    programs = [shutil.which(word) for word in words[: count + 1]]
    for word, program in zip(words, programs, strict=False):
        if program is None:
            which = "is not a program" if words == [named] else f"names {word!r}, which is not a program"
            return Missing(f"CXX is {named!r}, which {which}", _CXX_HINT)
    *launchers, compiler = map(Path, filter(None, programs))
    return compiler, tuple(words[count + 1 :]), tuple(launchers)


def _executable(name: str) -> Path | None:
    """Return the path of a program in this environment or on ``PATH``; None if it is not found."""
    own = Path(sys.executable).parent / name
    found = str(own) if own.exists() else shutil.which(name)
    return None if found is None else Path(found)


def _version(program: Path) -> tuple[int, ...]:
    """Return the first version number that a program prints; empty if it prints none."""
    found = _VERSION.search(version_text(program))
    return tuple(int(part) for part in found.groups() if part) if found else ()


def version_text(program: Path) -> str:
    """Return the output of ``program --version``; empty if the program cannot be run."""
    try:
        run = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout
