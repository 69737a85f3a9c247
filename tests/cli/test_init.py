"""``etdev init``: what it writes, and that it never writes over anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.cli import app
from etdev.templates import TEMPLATES, project_name_from
from etdev.templates import create as create_module

FILES = sorted(TEMPLATES["minimal"].files)


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_writes_a_project_named_like_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deep" / "my model!"
    assert app.run(["init", str(folder)]) == 0

    assert _files(folder) == FILES
    assert list(folder.parent.iterdir()) == [folder]
    assert 'name = "my_model"' in (folder / "etdev.toml").read_text()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "etdev build" in captured.err


@pytest.mark.parametrize(
    ("folder", "step"),
    [
        ("project", "cd project && etdev build"),
        ("wéird dir/with space", "cd 'wéird dir/with space' && etdev build"),
        ("-x", "cd ./-x && etdev build"),
        (".", "etdev build"),
    ],
)
def test_the_next_step_can_be_copied_into_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str, step: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.run(["init", "--", folder]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"Next: {step}"


def test_writes_into_the_folder_it_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert app.run(["init", "--name", "other", "-q"]) == 0
    assert _files(tmp_path) == sorted([*FILES, "notes.txt"])
    assert 'name = "other"' in (tmp_path / "etdev.toml").read_text()


def test_never_writes_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data.py").write_text("mine")
    (tmp_path / "README.md").symlink_to("nowhere")
    assert app.run(["init", str(tmp_path)]) == 2

    assert _files(tmp_path) == ["README.md", "data.py"]
    assert (tmp_path / "data.py").read_text() == "mine"
    assert "would overwrite data.py, README.md; nothing was written" in capsys.readouterr().err


@pytest.mark.parametrize("exists", [False, True], ids=["new folder", "existing folder"])
def test_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    folder = tmp_path / "project"
    if exists:
        folder.mkdir()
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == "README.md" or self.name.startswith(".project."):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(create_module.Path, "rename", interrupted)
    assert app.run(["init", str(folder)]) == 130
    assert _files(tmp_path) == (["project"] if exists else [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--template", "maximal"], "error: --template: there is no template 'maximal'\nhint: one of: minimal, "),
        (["--name", "../up"], "error: --name: '../up' cannot be a project's name, which becomes a file name\n"),
    ],
)
def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert app.run(["init", str(tmp_path / "x"), *arguments]) == 2
    assert capsys.readouterr().err.startswith(message)
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("")
    assert app.run(["init", str(tmp_path / "x")]) == 2
    assert "this is a file, not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("model", "model"),
        ("my model", "my_model"),
        ("..hidden", "hidden"),
        ("Ünïcode", "n_code"),
        ("", "model"),
        ("!", "model"),
    ],
)
def test_project_names(folder: str, name: str) -> None:
    assert project_name_from(folder) == name
