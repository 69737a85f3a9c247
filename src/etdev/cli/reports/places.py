"""Paths of files in findings, relative to the root of the repository. Code hosts require such paths."""

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
    """Folder to which relative paths in messages refer."""
    root: Path
    """Folder to which the resulting paths are relative."""

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> Places:
        """Return the conversion for a command in the current folder.

        On GitHub, ``GITHUB_WORKSPACE`` is the root of the repository. A job may run in a subfolder of the root.
        """
        folder = Path.cwd()
        workspace = environ.get("GITHUB_WORKSPACE")
        root = Path(os.path.normpath(workspace)) if workspace else folder
        return cls(folder, root if folder.is_relative_to(root) else folder)

    def path(self, source: str) -> PurePath:
        """Return the path of a file relative to the root; an absolute path if the file is not below the root."""
        absolute = Path(os.path.normpath(self.folder / source))
        return absolute.relative_to(self.root) if absolute.is_relative_to(self.root) else absolute

    def uri(self, source: str) -> str:
        """Return the path as a URI reference."""
        path = self.path(source)
        return path.as_uri() if path.is_absolute() else quote(path.as_posix())
