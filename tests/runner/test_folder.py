"""A project's folder: etdev replaces its own files only, completely or not at all. 11."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from etdev.errors import UsageError, WriteError
from etdev.runner import MANIFEST, write_project

FILES = {"main.cc": b"one", "tiny.pte": b"two"}


def found(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != MANIFEST}


def test_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "project"
    assert write_project(folder, FILES) == ("main.cc", "tiny.pte")
    assert found(folder) == FILES
    assert [path.name for path in folder.parent.iterdir()] == ["project"]


def test_the_second_run_changes_nothing(tmp_path: Path) -> None:
    write_project(tmp_path / "project", FILES)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "project").iterdir()}
    assert write_project(tmp_path / "project", FILES) == ()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "project").iterdir()} == times


def test_own_files_are_replaced_and_removed(tmp_path: Path) -> None:
    write_project(tmp_path, FILES)
    (tmp_path / "build").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    assert write_project(tmp_path, {"main.cc": b"new", "file_0.c": b"three"}) == ("main.cc", "file_0.c")
    assert found(tmp_path) == {"main.cc": b"new", "file_0.c": b"three", "notes.txt": b"mine"}
    assert (tmp_path / "build").is_dir()
    assert list(json.loads((tmp_path / MANIFEST).read_text())["files"]) == ["file_0.c", "main.cc"]


def test_a_file_of_the_user_stays(tmp_path: Path) -> None:
    (tmp_path / "main.cc").write_text("mine")
    with pytest.raises(UsageError, match=r"would overwrite main\.cc, which etdev did not write; nothing was written"):
        write_project(tmp_path, FILES)
    assert found(tmp_path) == {"main.cc": b"mine"}


def test_a_changed_file_stays(tmp_path: Path) -> None:
    write_project(tmp_path, FILES)
    (tmp_path / "main.cc").write_text("edited")
    with pytest.raises(UsageError, match=r"would overwrite main\.cc, which etdev wrote and someone changed"):
        write_project(tmp_path, {"main.cc": b"new", "tiny.pte": b"new"})
    assert found(tmp_path) == {"main.cc": b"edited", "tiny.pte": b"two"}
    # It may stay if the project does not have it any more, or has just that.
    assert write_project(tmp_path, {"tiny.pte": b"new"}) == ("tiny.pte",)
    assert found(tmp_path) == {"main.cc": b"edited", "tiny.pte": b"new"}


def test_an_interrupted_run_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill between two files, the next run knows both old and new files as its own."""
    write_project(tmp_path, FILES)
    new = {"main.cc": b"new", "tiny.pte": b"newer"}
    from etdev.runner import folder as module

    write = module.atomic_write_bytes

    def killed(path: Path, content: bytes) -> None:
        if path.name == "tiny.pte":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(module, "atomic_write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        write_project(tmp_path, new)
    assert found(tmp_path) == {"main.cc": b"new", "tiny.pte": b"two"}
    monkeypatch.undo()
    assert write_project(tmp_path, new) == ("tiny.pte",)
    assert found(tmp_path) == new


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2, "files": {}}', '{"format": 1}', '{"format": 1, "files": 3}'])
def test_a_strange_list(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(UsageError, match="not a list of files that this version of etdev can read"):
        write_project(tmp_path, FILES)
    assert found(tmp_path) == {}


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "project").write_text("mine")
    with pytest.raises(UsageError, match="this is a file, not a folder"):
        write_project(tmp_path / "project", FILES)


def test_a_link_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"one")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "main.cc").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"would overwrite main\.cc"):
        write_project(folder, FILES)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(WriteError, match="cannot write the project"):
        write_project(tmp_path / "project", FILES)
