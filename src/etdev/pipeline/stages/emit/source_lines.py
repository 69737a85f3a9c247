"""Source lines of ops, from the stack traces that ``torch.export`` leaves on nodes."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from etdev.pipeline.stages.emit.graphs import delegated_nodes
from etdev.program.sidecar import Source

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>.+)(?:\n {4}(?P<text>.*))?', re.MULTILINE
)
_TRACING = ("torch", "torchao", "executorch", "etdev")
"""Packages whose stack frames come from tracing, not from the model."""


class SourceLines:
    """A lookup of source lines: in the user's code if possible, otherwise in an installed package."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Create a lookup for the project's folder ``root``.

        Paths of files below ``root`` are relative to ``root``. Paths of other files are relative to the entry of
        ``sys.path`` from which they were imported. Therefore the paths do not depend on the machine.
        """
        self._root = PurePath(os.path.realpath(root))
        self._packages = tuple(
            PurePath(os.path.realpath(sysconfig.get_path(name))) for name in ("purelib", "platlib", "stdlib")
        )
        self._path = sorted(
            {PurePath(os.path.realpath(entry)) for entry in sys.path}, key=lambda entry: -len(entry.parts)
        )
        self._tracing = tuple(place for name in _TRACING if (place := _folder_of(name)) is not None)
        self._located = cache(self._locate)

    def of(self, module: GraphModule, node: Node) -> Source | None:
        """Return the source line of a node, or of the last op in a delegate call; None if the line is not known."""
        for item in reversed(delegated_nodes(module, node) or [node]):
            trace = item.meta.get("stack_trace")
            if trace and (source := self._located(trace)) is not None:
                return source
        return None

    def _locate(self, trace: str) -> Source | None:
        installed = None
        for frame in reversed(list(_FRAME.finditer(trace))):
            name, theirs = self._name(frame["file"])
            if name is None:
                continue
            source = Source(name, int(frame["line"]), frame["function"], (frame["text"] or "").strip())
            if not theirs:
                return source
            installed = installed or source
        return installed

    def _name(self, file: str) -> tuple[str | None, bool]:
        """Return a file's relative path, and True if an installed package contains the file.

        The path is None for ignored files.
        """
        if file.startswith("<"):  # Torch generates code for branches, for example.
            return None, False
        path = PurePath(os.path.realpath(file))
        if any(path.is_relative_to(place) for place in self._tracing):
            return None, False
        theirs = any(path.is_relative_to(place) for place in self._packages)
        if not theirs and path.is_relative_to(self._root):
            return path.relative_to(self._root).as_posix(), False
        for entry in self._path:
            if path.is_relative_to(entry):
                return path.relative_to(entry).as_posix(), theirs
        return path.name, theirs


def _folder_of(package: str) -> PurePath | None:
    """Return the folder of an imported package; None if the package is not imported."""
    folder = next(iter(getattr(sys.modules.get(package), "__path__", ())), None)
    return None if folder is None else PurePath(os.path.realpath(folder))
