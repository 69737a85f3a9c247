"""Tools that compile the native host: ExecuTorch's C++ runtime, CMake and a C++ compiler."""

from __future__ import annotations

import importlib.util
import os
import re
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
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Missing:
    """Tool that this machine lacks."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Tools that compile the native host."""

    package: Path
    """Folder of the package ``executorch``, with ``lib`` and ``share/cmake``."""
    cmake: Path
    compiler: Path
    ninja: Path | None
    """Ninja; None if CMake has to use make."""


@cache
def find_toolchain() -> Toolchain | Missing:
    """Return the tools for the native host, or the first one that is missing."""
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
    if compiler is None:
        return _no_compiler()
    ninja = _executable("ninja")
    if ninja is None and shutil.which("make") is None:
        return Missing("neither ninja nor make was found", NATIVE_EXTRA)
    return Toolchain(package, cmake, compiler, ninja)


def _package() -> Path | None:
    spec = importlib.util.find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _cmake() -> Path | None:
    """Return CMake from this environment or from ``PATH``, if it is new enough."""
    found = (Path(sys.executable).parent / "cmake", *map(Path, filter(None, [shutil.which("cmake")])))
    return next((path for path in found if path.exists() and _version(path) >= _CMAKE), None)


def _compiler() -> Path | None:
    named = os.environ.get("CXX")
    names = [named] if named else ["c++", "g++", "clang++"]
    return next((Path(found) for name in names if (found := shutil.which(name))), None)


def _no_compiler() -> Missing:
    named = os.environ.get("CXX")
    if named:
        return Missing(f"CXX is {named!r}, which is no program", "set CXX to the path of a C++ compiler, or unset it")
    return Missing("no C++ compiler was found", "apt install g++, or name a compiler in CXX")


def _executable(name: str) -> Path | None:
    """Return a program from this environment, or from ``PATH``."""
    own = Path(sys.executable).parent / name
    found = str(own) if own.exists() else shutil.which(name)
    return None if found is None else Path(found)


def _version(program: Path) -> tuple[int, ...]:
    """Return the first version number that a program prints; empty if it prints none."""
    found = _VERSION.search(version_text(program))
    return tuple(int(part) for part in found.groups() if part) if found else ()


def version_text(program: Path) -> str:
    """Return what ``program --version`` prints; empty if it fails."""
    try:
        run = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout
