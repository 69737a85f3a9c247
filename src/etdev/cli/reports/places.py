"""Where a finding is, as whoever shows it beside the code names files: relative to the root of the repository."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Places:
    """How files are named."""

    folder: Path
    """What relative paths in messages are relative to."""
    root: Path
    """What they are to be relative to."""

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> Places:
        """For a command that runs in the current folder.

        GitHub says in ``GITHUB_WORKSPACE`` where the repository is, which a job may have left for one of its folders.
        """
        folder = Path.cwd()
        workspace = environ.get("GITHUB_WORKSPACE")
        root = Path(os.path.normpath(workspace)) if workspace else folder
        return cls(folder, root if folder.is_relative_to(root) else folder)

    def path(self, source: str) -> PurePath:
        """A file as it is named from the root; absolute if it lies elsewhere."""
        absolute = Path(os.path.normpath(self.folder / source))
        return absolute.relative_to(self.root) if absolute.is_relative_to(self.root) else absolute

    def uri(self, source: str) -> str:
        """The same as a URI reference."""
        path = self.path(source)
        return path.as_uri() if path.is_absolute() else quote(path.as_posix())
