"""E3: ``etdev init``: what it writes, what it asks, and that it writes over nothing without saying so."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from etdev.cli import app
from etdev.config import module_imports
from etdev.errors import UsageError
from etdev.templates import TEMPLATES, project_name_from, render
from etdev.templates import create as create_module
from support.commands import run_etdev
from support.terminal import on_a_terminal

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
    monkeypatch.setattr(module_imports, "is_installed", lambda name: True)
    assert app.run(["init", "--", folder]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"Next: {step}"


def test_the_next_step_installs_what_the_model_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module_imports, "is_installed", lambda name: False)
    assert app.run(["init", "my-llm", "--template", "llm"]) == 0
    step = 'pip install "etdev[build,hf]" && cd my-llm && etdev build'
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
        (folder / "data.py").write_text("mine")
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == "README.md" or self.name.startswith(".project."):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(create_module.Path, "rename", interrupted)
    assert app.run(["init", str(folder), "--force"]) == 130
    assert _files(tmp_path) == (["project", "project/data.py"] if exists else [])
    assert not exists or (folder / "data.py").read_text() == "mine"


@pytest.mark.parametrize("exists", [False, True], ids=["new folder", "existing folder"])
def test_what_a_killed_init_left_goes_with_the_next(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "project"
    if exists:
        folder.mkdir()
    kill = (
        "import os, signal\nfrom pathlib import Path\nPath.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    init = f"from etdev.cli import app\napp.run(['init', {str(folder)!r}])"
    done = subprocess.run([sys.executable, "-c", kill + init], check=False, timeout=100)
    assert done.returncode == -signal.SIGKILL
    (left,) = (folder if exists else tmp_path).iterdir()
    assert left.name.startswith(".project.")

    assert app.run(["init", str(folder), "-q"]) == 0
    assert _files(folder) == FILES
    assert list(tmp_path.iterdir()) == [folder]


def test_force_keeps_what_it_replaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data.py").write_text("mine")
    (tmp_path / "data.py.bak").write_text("older")
    (tmp_path / "README.md").symlink_to("nowhere")
    assert app.run(["init", str(tmp_path), "--force"]) == 0

    assert _files(tmp_path) == sorted([*FILES, "data.py.bak", "data.py.bak2", "README.md.bak"])
    assert (tmp_path / "data.py.bak").read_text() == "older"
    assert (tmp_path / "data.py.bak2").read_text() == "mine"
    assert (tmp_path / "README.md.bak").is_symlink()
    shown = capsys.readouterr().err
    assert "Replaced data.py: the previous file is data.py.bak2\n" in shown
    assert "Replaced README.md: the previous file is README.md.bak\n" in shown


def test_the_same_again_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["init", str(tmp_path), "--name", "x"]) == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    capsys.readouterr()
    assert app.run(["init", str(tmp_path), "--name", "x"]) == 0

    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    shown = capsys.readouterr().err
    assert "Unchanged: " in shown
    assert "Wrote" not in shown


def test_a_shared_file_is_kept_and_what_it_lacks_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ignored = tmp_path / ".gitignore"
    ignored.write_text("*.log\n")
    assert app.run(["init", str(tmp_path), "--force"]) == 0
    assert ignored.read_text() == "*.log\n"
    assert "Kept your file .gitignore. Add these lines to the file:\n\n    build/\n" in capsys.readouterr().err

    ignored.write_text("*.log\n*.etdev-tmp\n__pycache__/\nbuild/\n")
    assert app.run(["init", str(tmp_path)]) == 0
    assert "Kept" not in capsys.readouterr().err


def test_a_folder_in_the_place_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").mkdir()
    assert app.run(["init", str(tmp_path), "--force"]) == 2
    assert _files(tmp_path) == ["model.py"]
    assert "model.py: this is a folder, but a file would be written here" in capsys.readouterr().err


# On a terminal.


def test_asks_for_what_was_not_given(tmp_path: Path) -> None:
    answers = [
        ("Template [minimal]: ", "maximal\r"),
        ("Template [minimal]: ", "1\r"),
        ("Folder [.]: ", "new\r"),
        ("Name of the project [new]: ", "../up\r"),
        ("Name of the project [new]: ", "other\r"),
    ]
    code, shown = on_a_terminal(tmp_path, "init", answers=answers, env={"NO_COLOR": "1"})

    assert code == 0, shown
    assert f"  1  minimal       {TEMPLATES['minimal'].summary}" in shown
    assert "error: 'maximal' is not one of the options" in shown
    assert "error: '../up' cannot be the name of a project" in shown
    assert re.search(r"Next: (pip install \S+ && )?cd new && etdev build", shown)
    assert 'name = "other"' in (tmp_path / "new" / "etdev.toml").read_text()


def test_a_tilde_is_a_home(tmp_path: Path) -> None:
    answers = [("Template", "\r"), ("Folder", "~nobody-at-all/x\r"), ("Folder", "~/new\r"), ("Name", "\r")]
    home = tmp_path / "home"
    code, shown = on_a_terminal(tmp_path, "init", answers=answers, env={"HOME": str(home), "NO_COLOR": "1"})
    assert code == 0, shown
    assert "error: the home folder in '~nobody-at-all/x' belongs to an unknown user" in shown
    assert _files(home / "new") == FILES
    assert list(tmp_path.iterdir()) == [home]


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 2), ("n", 2)])
def test_asks_before_files_are_replaced(tmp_path: Path, answer: str, code: int) -> None:
    (tmp_path / "data.py").write_text("mine")
    arguments = ("init", ".", "--template", "minimal", "--name", "x")
    question = "Replace data.py (kept as NAME.bak)? y/n [n]: "
    ended, shown = on_a_terminal(tmp_path, *arguments, answers=[(question, f"{answer}\r")])

    assert ended == code, shown
    assert (_files(tmp_path) == ["data.py"]) == (code == 2)
    assert (tmp_path / ("data.py" if code else "data.py.bak")).read_text() == "mine"


def test_what_comes_while_it_asks_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("mine")
    plan = create_module.plan_project(tmp_path, render("minimal", "x"))
    (tmp_path / "model.py").write_text("mine, too")
    with pytest.raises(UsageError, match=r"would overwrite model\.py; nothing was written"):
        create_module.create_project(plan, replace=True)
    assert _files(tmp_path) == ["data.py", "model.py"]
    assert (tmp_path / "data.py").read_text() == "mine"


@pytest.mark.parametrize(("answer", "code"), [("", 0), ("no", 2)])
def test_asks_before_files_are_mixed_with_others(tmp_path: Path, answer: str, code: int) -> None:
    (tmp_path / "notes.txt").touch()
    question = f". is not empty. Add {len(FILES)} files? y/n [y]: "
    arguments = ("init", ".", "--template", "minimal", "--name", "x")
    ended, shown = on_a_terminal(tmp_path, *arguments, answers=[(question, f"{answer}\r")])

    assert ended == code, shown
    assert (_files(tmp_path) == ["notes.txt"]) == (code == 2)


@pytest.mark.parametrize("key", ["\x04", "\x03"], ids=["end of input", "ctrl-c"])
def test_whoever_leaves_gets_nothing(tmp_path: Path, key: str) -> None:
    code, shown = on_a_terminal(tmp_path, "init", answers=[("Template", "\r"), ("Folder", key)])
    assert code == 130, shown
    assert "interrupted" in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("arguments", "env"), [(["--yes"], {}), ([], {"CI": "true"})], ids=["--yes", "CI"])
def test_asks_nothing_where_nobody_answers(tmp_path: Path, arguments: list[str], env: dict[str, str]) -> None:
    code, shown = on_a_terminal(tmp_path, "init", *arguments, env=env)
    assert code == 0, shown
    assert "?" not in shown
    assert _files(tmp_path) == FILES


def test_waits_for_no_input_without_a_terminal(tmp_path: Path) -> None:
    """A pipe that nobody writes to and nobody closes."""
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as silent:
        done = run_etdev("init", folder=tmp_path, stdin=silent.stdout)
        silent.kill()
    assert done.returncode == 0, done.stderr
    assert _files(tmp_path) == FILES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--template", "maximal"], "error: --template: there is no template 'maximal'\nhelp: use one of: minimal, "),
        (
            ["--name", "../up"],
            ("error: --name: '../up' cannot be the name of a project, because etdev names files after the project\n"),
        ),
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
