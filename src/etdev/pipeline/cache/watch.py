"""Watches, which record the files of a project that Python opens, and the folders that it lists.

A watch is active while the project's code runs. Python reports each ``open`` as an audit event. Libraries that read
files without Python, such as safetensors, cause no event.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etdev.files import TEMPORARY_SUFFIX

_WATCHES: list[Watch] = []
"""The active watches. The single audit hook reads this list, because Python cannot remove a hook."""
_LISTS = frozenset({"os.listdir", "os.scandir"})
_EVENTS = _LISTS | {"open"}
"""Audit events that a watch records. The hook ignores all other events, of which a build causes a million."""


@dataclass(slots=True)
class FileAccess:
    """Absolute paths of files that were read and of folders that were listed. Symbolic links are not resolved."""

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    def add(self, other: FileAccess) -> None:
        """Add the paths of ``other``."""
        self.files |= other.files
        self.folders |= other.folders


class Watch:
    """A watch that records accesses to files below certain folders, except ignored folders; a context manager."""

    _hooked = False

    def __init__(self, below: Sequence[Path], ignored: Sequence[Path]) -> None:
        self._below = _prefixes(below)
        self._ignored = _prefixes(ignored)
        self._sinks: list[FileAccess] = []
        self.seen = FileAccess()
        """All accesses so far."""

    @contextmanager
    def into(self, seen: FileAccess) -> Iterator[None]:
        """Inside the block, record accesses in the argument ``seen`` and in :attr:`seen`."""
        self._sinks.append(seen)
        try:
            yield
        finally:
            self._sinks.remove(seen)

    def __enter__(self) -> Watch:
        if not Watch._hooked:
            sys.addaudithook(_hook)
            Watch._hooked = True
        _WATCHES.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _WATCHES.remove(self)

    def note(self, path: str, *, folder: bool) -> None:
        """Record a listed folder if ``folder`` is True, or a file that was read if ``folder`` is False."""
        name = os.path.abspath(path)
        inside = f"{name}/"
        below = next((prefix for prefix in self._below if inside.startswith(prefix)), None)
        if below is None or inside.startswith(self._ignored) or _is_no_input(inside.removeprefix(below)):
            return
        for seen in (self.seen, *self._sinks):
            (seen.folders if folder else seen.files).add(name)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS or not _WATCHES:
        return
    try:
        path = arguments[0]
        if event == "open" and (isinstance(path, int) or not _reads(arguments[2])):
            return
        if event == "open" and _is_removal(sys._getframe(1).f_globals, path):
            return
        if event in _LISTS and (isinstance(path, int) or _is_import(sys._getframe(1).f_globals)):
            return
        name = os.fsdecode(path if path is not None else ".")
        for watch in _WATCHES:
            watch.note(name, folder=event in _LISTS)
    except Exception:  # noqa: BLE001 - the code that opens the file would get the exception
        return


def _reads(flags: Any) -> bool:
    return isinstance(flags, int) and flags & os.O_ACCMODE != os.O_WRONLY and not flags & (os.O_CREAT | os.O_TRUNC)


def _is_import(module: dict[str, Any]) -> bool:
    """Return True if the frame with these globals belongs to Python's search for modules."""
    return str(module.get("__name__", "")).startswith("importlib.")


def _is_removal(module: dict[str, Any], path: Any) -> bool:
    """Return True if ``shutil.rmtree`` opens a folder by a relative path.

    The path may be relative to a parent folder that the audit event does not state. The folder is then unknown.
    """
    return module.get("__name__") == "shutil" and not os.path.isabs(path)


def _is_no_input(name: str) -> bool:
    """Return True if the file or folder at a path is never an input of a build.

    This applies to bytecode, to hidden files and folders, and to unfinished files.
    """
    parts = name.rstrip("/").split("/")
    return name.endswith((".pyc/", f"{TEMPORARY_SUFFIX}/")) or any(
        part.startswith((".", "__pycache__")) for part in parts
    )


def _prefixes(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return each folder's absolute path and resolved path, with a slash at the end.

    A path below a folder starts with one of these prefixes.
    """
    return tuple({f"{name}/" for path in paths for name in (os.path.abspath(path), os.path.realpath(path))})
