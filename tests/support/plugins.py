"""Packages with entry points, installed as far as Python's metadata can tell."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from etdev import plugins


def install(
    folder: Path,
    package: str,
    points: Mapping[str, Mapping[str, str]],
    files: Mapping[str, str] | None = None,
    version: str = "1.0",
) -> None:
    """Write a package's metadata and files to a folder of ``sys.path``: ``points`` is group → name → object."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in entries.items()) for group, entries in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    plugins._points_on.cache_clear()


class Site:
    """A folder of ``sys.path`` that packages are installed to."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = patch
        patch.syspath_prepend(folder)

    def install(
        self, package: str, points: Mapping[str, Mapping[str, str]], files: Mapping[str, str] | None = None
    ) -> None:
        """Install a package; its modules are imported anew."""
        install(self.folder, package, points, files)
        for path in files or {}:
            self._patch.delitem(sys.modules, path.partition("/")[0].removesuffix(".py"), raising=False)


class Packages:
    """A folder of installed packages, each with one module and one entry point of the same group."""

    def __init__(self, folder: Path, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._group = group
        self._site = Site(folder, monkeypatch)

    def install(self, package: str, name: str, source: str, attribute: str) -> None:
        points = {self._group: {name: f"{package}:{attribute}"}}
        self._site.install(package, points, {f"{package}.py": source})
