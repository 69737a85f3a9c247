"""What Python reads inside a project while code of the project runs is seen (E2)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from etdev.pipeline.cache.watch import FileAccess, Watch


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project; the current folder."""
    for name in ("a.txt", "data/b.txt", "data/c.txt", "build/d.txt", ".git/e.txt", "more/.hidden/f.txt", "g.pyc"):
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text("text")
    np.save(tmp_path / "project" / "h.npy", np.zeros(2))
    (tmp_path / "outside.txt").write_text("text")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def seen_by(folder: Path, action: Callable[[], object]) -> tuple[set[str], set[str]]:
    """Files and folders, relative to the project."""
    with Watch([folder], [folder / "build"]) as watch:
        action()
    with open(folder / "a.txt"):
        pass  # Nobody listens any more.
    names = watch.seen.files, watch.seen.folders
    files, folders = ({os.path.relpath(name, folder) for name in found} for found in names)
    return files, folders


def _open(name: str) -> str:
    with open(name) as file:
        return file.read()


def _write() -> None:
    with open("new.txt", "w") as file:
        file.write("text")


def _remove() -> None:
    """Remove a folder elsewhere, whose own folder has the name of a file here: Python opens it by that name alone."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.txt").mkdir()


@pytest.mark.parametrize(
    ("action", "files", "folders"),
    [
        (lambda: _open("a.txt"), {"a.txt"}, set()),
        (lambda: Path("data/b.txt").read_text(), {"data/b.txt"}, set()),
        (lambda: Path("data/../a.txt").read_text(), {"a.txt"}, set()),
        (lambda: os.close(os.open(b"a.txt", os.O_RDONLY)), {"a.txt"}, set()),
        (lambda: np.load("h.npy"), {"h.npy"}, set()),
        (lambda: np.load("h.npy", mmap_mode="r"), {"h.npy"}, set()),
        (lambda: [path.read_text() for path in Path("data").glob("*.txt")], {"data/b.txt", "data/c.txt"}, {"data"}),
        (lambda: os.listdir("data"), set(), {"data"}),
        (lambda: list(os.scandir()), set(), {"."}),
        (_write, set(), set()),
        (_remove, set(), set()),
        (lambda: _open("build/d.txt"), set(), set()),
        (lambda: _open("../outside.txt"), set(), set()),
        (lambda: _open(".git/e.txt"), set(), set()),
        (lambda: _open("more/.hidden/f.txt"), set(), set()),
        (lambda: _open("g.pyc"), set(), set()),
        (lambda: os.fdopen(os.open("a.txt", os.O_RDONLY)).close(), {"a.txt"}, set()),
    ],
)
def test_what_is_seen(folder: Path, action: Callable[[], object], files: set[str], folders: set[str]) -> None:
    assert seen_by(folder, action) == (files, folders)


def test_a_project_in_a_hidden_folder(tmp_path: Path) -> None:
    hidden = tmp_path / ".work" / "project"
    hidden.mkdir(parents=True)
    (hidden / "a.txt").write_text("text")
    assert seen_by(hidden, (hidden / "a.txt").read_text) == ({"a.txt"}, set())


def test_python_looking_for_modules_is_no_reading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "some_module_of_the_test.py").write_text("x = 1")
    monkeypatch.syspath_prepend(str(folder))
    _, folders = seen_by(folder, lambda: __import__("some_module_of_the_test"))
    assert folders == set()


def test_what_a_block_reads_can_be_told_apart(folder: Path) -> None:
    inside = FileAccess()
    with Watch([folder], []) as watch:
        Path("a.txt").read_text()
        with watch.into(inside):
            Path("data/b.txt").read_text()
        Path("data/c.txt").read_text()
    assert inside.files == {str(folder / "data/b.txt")}
    assert watch.seen.files == {str(folder / name) for name in ("a.txt", "data/b.txt", "data/c.txt")}
