"""The line of the user's model that an op comes from, by the stack trace that ``torch.export`` leaves on a node."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from etdev.pipeline.objects.graphs import delegated_nodes
from etdev.program.sidecar import Source

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>.+)(?:\n {4}(?P<text>.*))?', re.MULTILINE
)
_TRACING = ("torch", "torchao", "executorch", "etdev")
"""Packages whose frames say how an op was traced, not where the model has it."""


class SourceLines:
    """Finds the innermost frame in the user's code, or in the installed package that the model's class is from."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """``root`` is the project's folder: files in it are named relative to it, others relative to the entry of
        ``sys.path`` that they were imported from. So the same model gives the same names on every machine."""
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
        """The line of a node; of a delegate call, that of the last op inside. None where nobody wrote one."""
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
        """How the file is called, None for one that does not count; and is it an installed package's?"""
        if file.startswith("<"):  # Code that torch made, like that of branches.
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
    """Where an imported package is."""
    module = sys.modules.get(package)
    for folder in _folders(module):
        return PurePath(os.path.realpath(folder))
    return None


def _folders(module: object) -> Iterator[str]:
    yield from getattr(module, "__path__", ())
