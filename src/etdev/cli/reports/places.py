"""Paths of files in findings, as code hosts need them: relative to the root of the repository."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Places:
    """Conversion of file paths in messages to paths relative to the repository."""

    folder: Path
    """Folder that relative paths in messages refer to."""
    root: Path
    """Folder that the resulting paths are relative to."""

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> Places:
        """Return the conversion for a command that runs in the current folder.

        On GitHub, ``GITHUB_WORKSPACE`` is the root of the repository, and a job may run in a folder below it.
        """
        folder = Path.cwd()
        workspace = environ.get("GITHUB_WORKSPACE")
        root = Path(os.path.normpath(workspace)) if workspace else folder
        return cls(folder, root if folder.is_relative_to(root) else folder)

    def path(self, source: str) -> PurePath:
        """Return the path of a file relative to the root; absolute if it is elsewhere."""
        absolute = Path(os.path.normpath(self.folder / source))
        return absolute.relative_to(self.root) if absolute.is_relative_to(self.root) else absolute

    def uri(self, source: str) -> str:
        """Return the path as a URI reference."""
        path = self.path(source)
        return path.as_uri() if path.is_absolute() else quote(path.as_posix())
