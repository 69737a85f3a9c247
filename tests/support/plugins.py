"""Packages that register something with etdev, as far as Python's metadata can tell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


class Packages:
    """A folder of installed packages, each with one module and one entry point."""

    def __init__(self, folder: Path, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._group, self._monkeypatch = folder, group, monkeypatch
        monkeypatch.syspath_prepend(folder)

    def install(self, package: str, name: str, source: str, attribute: str) -> None:
        info = self._folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{self._group}]\n{name} = {package}:{attribute}\n")
        (self._folder / f"{package}.py").write_text(source)
        self._monkeypatch.delitem(sys.modules, package, raising=False)
