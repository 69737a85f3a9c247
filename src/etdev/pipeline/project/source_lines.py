"""Source lines of ops, from the stack traces that ``torch.export`` leaves on nodes.

Torch keeps only the frames of functions with the name ``forward``. Therefore :func:`model_frames` selects frames during
an export. Otherwise an op in another method of the model would have no source line, and an op in a helper function
would have the line of the call.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import PurePath
from threading import RLock
from traceback import StackSummary
from typing import TYPE_CHECKING, Any

from etdev.program.sidecar import Source

if TYPE_CHECKING:
    from torch.fx import Node
    from torch.fx.proxy import TracerBase

_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>.+)(?:\n {4}(?P<text>.*))?', re.MULTILINE
)
_TRACING = ("torch", "torchao", "executorch", "etdev")
"""Packages whose stack frames come from tracing, not from the model."""
_FRAME_FILTER = "_filter_traceback_frames"
"""Method of torch's tracers that selects frames. Torch documents that it may be overridden."""
_SELECTING = RLock()
"""Lock that is held while the frames of a model are selected."""


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

    def of(self, nodes: Sequence[Node]) -> Source | None:
        """Return the source line of the last node that has one; None if no line is known."""
        traces = (node.meta.get("stack_trace") for node in reversed(nodes))
        return next((source for trace in traces if trace and (source := self.in_trace(trace)) is not None), None)

    def in_trace(self, trace: str, *, installed: bool = True) -> Source | None:
        """Return the source line in the text of a stack trace; None if no line is known.

        If ``installed`` is False, ignore lines of installed packages.
        """
        source, theirs = self._located(trace)
        return source if installed or not theirs else None

    def _locate(self, trace: str) -> tuple[Source | None, bool]:
        """Return the source line in a trace, and True if an installed package contains it."""
        installed = None
        for frame in reversed(list(_FRAME.finditer(trace))):
            name, theirs = self._name(frame["file"])
            if name is None:
                continue
            source = Source(name, int(frame["line"]), frame["function"], (frame["text"] or "").strip())
            if not theirs:
                return source, False
            installed = installed or source
        return installed, True

    def _name(self, file: str) -> tuple[str | None, bool]:
        """Return a file's relative path, and True if an installed package contains the file.

        The path is None for ignored files.
        """
        # Torch generates code for branches, for example, and gives some ops a relative path of its own.
        if file.startswith("<") or not os.path.isabs(file):
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


@contextmanager
def model_frames(caller: Callable[..., Any]) -> Iterator[None]:
    """Keep all frames of the model in the stack traces of an export.

    These are the frames inside ``caller``, the function that calls ``torch.export``. Of torch's own frames, only those
    of the functions ``forward`` are kept. If a version of torch selects frames otherwise, nothing changes. Exports in
    other threads wait, because the selection is a setting of the whole process.
    """
    import torch
    from torch.fx.proxy import TracerBase

    if not hasattr(TracerBase, _FRAME_FILTER):
        yield
        return
    code, torch_folder = caller.__code__, os.path.dirname(torch.__file__) + os.sep
    start = (code.co_filename, code.co_name)

    def keep(tracer: TracerBase, frames: StackSummary) -> StackSummary:
        inside = 1 + max((i for i, frame in enumerate(frames) if (frame.filename, frame.name) == start), default=-1)
        if not inside:
            chosen: StackSummary = before(tracer, frames)
            return chosen
        return StackSummary.from_list(
            frame for frame in frames[inside:] if frame.name == "forward" or not frame.filename.startswith(torch_folder)
        )

    with _SELECTING:
        before = getattr(TracerBase, _FRAME_FILTER)
        setattr(TracerBase, _FRAME_FILTER, keep)
        try:
            yield
        finally:
            setattr(TracerBase, _FRAME_FILTER, before)
