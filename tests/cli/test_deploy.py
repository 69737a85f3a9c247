"""E5: ``etdev deploy`` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.cli import app
from pipeline.test_deploy import built
from support.files import chain

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run ``etdev deploy`` beside a project that was built: exit code, stdout, stderr."""
    built(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(["deploy", *arguments])
        return code, *capfd.readouterr()

    return run


def _served(folder: Path) -> str:
    return (folder / "served" / "current").readlink().name


def test_a_deployment(run: Run, tmp_path: Path) -> None:
    code, out, err = run("here")
    size = (tmp_path / "build/cpu/tiny.pte").stat().st_size
    assert code == 0
    head, current, before, file, not_run = out.splitlines()
    assert head == "here  file:served"
    assert current == f"  current    {_served(tmp_path)}"
    assert before == "  before     nothing"
    assert file.startswith("  file       tiny.pte  ")
    assert f"({size:,} bytes)  sha256 " in file
    assert not_run == "  not run    replay, as the manifest states"
    assert [line.split(" 0.")[0] for line in err.splitlines()] == [
        f"here: {step}" for step in ("look", "upload", "read back", "switch")
    ]


def test_the_same_again(run: Run, tmp_path: Path) -> None:
    run("here")
    code, out, _ = run("here", "-q")
    assert code == 0
    assert out.splitlines()[1] == f"  current    {_served(tmp_path)}, which has the same content already: nothing to do"


def test_a_dry_run(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("here", "--dry-run")
    assert code == 0
    assert "  would be   " in out
    assert out.endswith("  dry run    nothing was changed\n")
    assert not (tmp_path / "served").exists()


def test_list_and_rollback(run: Run, tmp_path: Path) -> None:
    assert run("here", "--list")[1] == "here  file:served  0 releases\n"
    run("here")
    first = _served(tmp_path)
    built(tmp_path, chain(3))
    run("here")
    second = _served(tmp_path)
    code, out, _ = run("here", "--list")
    assert code == 0
    assert out.splitlines()[0] == "here  file:served  2 releases"
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["*", second], [first, "tiny"]]
    code, out, _ = run("here", "--rollback")
    assert (code, _served(tmp_path)) == (0, first)
    assert out.splitlines()[1:] == [f"  current    {first}, which was already there", f"  before     {second}"]
    code, _, err = run("here", "--rollback")
    assert code == 6
    assert f"error: file:served: there is no release before {first}\n" in err
    listed = json.loads(run("here", "--list", "--output", "json")[1])
    assert [(item["name"], item["current"]) for item in listed["releases"]] == [(second, False), (first, True)]


def test_json_alone_on_stdout(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("here", "--output", "json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["format"], answer["action"], answer["release"]) == (1, "published", _served(tmp_path))


def test_a_refusal_is_exit_6(run: Run, tmp_path: Path) -> None:
    (tmp_path / "build/cpu/tiny.pte").write_bytes(b"something else")
    code, out, err = run("here")
    assert (code, out) == (6, "")
    assert "error: " in err
    assert "the file has changed since it was built" in err
    assert "help: run `etdev build cpu` again" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["there"], "the config has no deployment 'there'"),
        (["here", "--list", "--rollback"], "--rollback and --list cannot be used together"),
        (["here", "--set", "deploy.here.uri=sftp://me:pw@h/x"], "sftp://me:…@h/x"),
        ([], "Missing argument 'NAME'"),
    ],
)
def test_wrong_usage_is_exit_2(arguments: list[str], said: str, run: Run) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "pw" not in err
