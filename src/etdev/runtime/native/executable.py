"""Executable of the native host, which is compiled on first use and stored in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib import metadata
from importlib.resources import files
from pathlib import Path

from etdev.errors import MissingRequirementError
from etdev.files import CACHE_VARIABLE, cache_folder, describe_os_error, file_sha256, locked, temporary_folder
from etdev.runtime.native.toolchain import NATIVE_EXTRA, Missing, Toolchain, find_toolchain, version_text

HOST_VARIABLE = "ETDEV_NATIVE_HOST"
"""Environment variable with the path of a native host to use instead of the one in the cache."""
_NAME = "etdev-native-host"
_DIGEST = "sha256"
"""Name of the file with the executable's SHA-256. A damaged executable is compiled again."""
_VARIABLES = ("CXXFLAGS", "LDFLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
"""Environment variables that influence the compilation of the sources."""
_SECONDS = 600
_TAIL = 20
"""Number of lines of cmake's output in an error message."""

Notify = Callable[[str], None]
"""Function that is called with a message before a slow operation."""


def ignore_notice(_: str) -> None:
    """Ignore a message, for callers that show no progress."""


def host_executable(notify: Notify = ignore_notice) -> Path:
    """Return the path of the native host; compile the host if it is not in the cache.

    If the environment variable ``ETDEV_NATIVE_HOST`` is set, return the path in it. No compiler is needed then.
    The cache contains one executable for each combination of executorch, compiler and sources of the host. Raises
    :class:`~etdev.errors.MissingRequirementError` if a tool is missing, if compilation fails, or if the cache cannot be
    written.
    """
    named = os.environ.get(HOST_VARIABLE)
    if named:
        return _named_host(Path(named))
    tools = find_toolchain()
    if isinstance(tools, Missing):
        raise MissingRequirementError(tools.reason, hint=tools.remedy)
    sources = sorted(path for path in _sources().iterdir() if path.suffix in {".cc", ".h", ".txt"})
    folder = cache_folder() / "native" / _key(tools, sources)
    executable = folder / _NAME
    try:
        if _is_whole(folder):
            return executable
        with locked(folder.with_suffix(".lock"), _waiting(notify)):
            if not _is_whole(folder):
                notify("compiling the native runtime, once: this takes some seconds")
                with temporary_folder(folder) as build:
                    _compile(tools, build)
                    _keep(build, folder)
    except OSError as error:
        raise MissingRequirementError(
            f"the native runtime cannot be stored in the cache: {describe_os_error(error)[0]}",
            where=os.fspath(folder),
            hint=f"set {CACHE_VARIABLE} to a folder that you can write to",
        ) from error
    return executable


def _named_host(path: Path) -> Path:
    if not os.access(path, os.X_OK) or path.is_dir():
        raise MissingRequirementError(
            f"{os.fspath(path)!r} is not an executable file",
            where=HOST_VARIABLE,
            hint=f"set {HOST_VARIABLE} to the path of a compiled native host, or unset the variable",
        )
    return path.absolute()


def _sources() -> Path:
    return Path(str(files("etdev.runtime.native").joinpath("host")))


def _key(tools: Toolchain, sources: list[Path]) -> str:
    digest = hashlib.sha256()
    for text in (metadata.version("executorch"), os.fspath(tools.package), version_text(tools.compiler)):
        digest.update(text.encode() + b"\0")
    for text in (*tools.arguments, *(f"{name}={os.environ.get(name, '')}" for name in _VARIABLES)):
        digest.update(os.fsencode(text) + b"\0")
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _waiting(notify: Notify) -> Callable[[int | None], None]:
    def wait(process: int | None) -> None:
        notify("another process is compiling the native runtime" + (f" (process {process})" if process else ""))

    return wait


def _compile(tools: Toolchain, build: Path) -> None:
    configure = [
        os.fspath(tools.cmake),
        "-S",
        os.fspath(_sources()),
        "-B",
        os.fspath(build),
        f"-DCMAKE_PREFIX_PATH={tools.package}",
        f"-DCMAKE_CXX_COMPILER={';'.join([os.fspath(tools.compiler), *tools.arguments])}",
        f"-DCMAKE_CXX_COMPILER_LAUNCHER={';'.join(map(os.fspath, tools.launchers))}",
        "-DCMAKE_BUILD_TYPE=Release",
    ]
    if tools.ninja is not None:
        configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"]
    _run(configure, "configure")
    _run([os.fspath(tools.cmake), "--build", os.fspath(build), "--parallel", str(os.cpu_count() or 1)], "compile")


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingRequirementError(
            f"the native runtime cannot be built: cmake failed to {what}: {error}", hint=_HINT
        ) from error
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-_TAIL:])
        raise MissingRequirementError(f"the native runtime cannot be built: cmake failed to {what}\n{tail}", hint=_HINT)


_HINT = f"install a C++ compiler for C++17 (`apt install g++`) and CMake (`{NATIVE_EXTRA}`)"


def _is_whole(folder: Path) -> bool:
    """Return True if the folder contains an executable that is not damaged. Raises OSError."""
    try:
        return file_sha256(folder / _NAME) == (folder / _DIGEST).read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return False


def _keep(build: Path, folder: Path) -> None:
    """Move the executable from ``build`` to the cache folder ``folder``, which is created atomically."""
    with temporary_folder(folder) as complete:
        (complete / _DIGEST).write_text(file_sha256(build / _NAME), encoding="ascii")
        os.rename(build / _NAME, complete / _NAME)
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.unlink(missing_ok=True)
        os.rename(complete, folder)
