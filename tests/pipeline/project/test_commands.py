"""The commands in messages work when they are copied (E2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etdev.cli.calls import find_program
from etdev.errors import DeployError, UsageError
from etdev.pipeline.deployable import make_release
from etdev.pipeline.project.commands import build_command
from support.projects import LINEAR_CONFIG, make_project

CONFIG = LINEAR_CONFIG + "    [targets.cpu]\n"


@pytest.mark.parametrize(
    ("config", "others", "command"),
    [
        ("etdev.toml", (), "etdev build cpu"),
        ("etdev.yml", (), "etdev build cpu"),
        ("etdev.toml", ("pyproject.toml",), "etdev build cpu"),
        ("pyproject.toml", (), "etdev build cpu"),
        ("pyproject.toml", ("etdev.toml",), "etdev build -c pyproject.toml cpu"),
        ("etdev.yaml", ("etdev.toml",), "etdev build -c etdev.yaml cpu"),
        ("etdev.toml", ("etdev.yaml",), "etdev build -c etdev.toml cpu"),
        ("my board.toml", (), "etdev build -c 'my board.toml' cpu"),
        ("my board.toml", ("etdev.toml",), "etdev build -c 'my board.toml' cpu"),
    ],
)
def test_the_command_names_a_config_that_etdev_would_not_take(
    config: str, others: tuple[str, ...], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reproducer: beside an `etdev.toml`, the command for `pyproject.toml` lacked `-c` and built another config."""
    project = make_project(tmp_path / "made", CONFIG)
    for name in (config, *others):
        (tmp_path / name).write_text("[tool.etdev]\n")
    monkeypatch.chdir(tmp_path)
    assert build_command(replace(project, loaded=replace(project.loaded, path=tmp_path / config)), "cpu") == command


def test_what_was_not_built_names_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path / "made", CONFIG)
    monkeypatch.chdir(tmp_path)
    command = "run `etdev build -c made/etdev.toml cpu`"
    with pytest.raises(UsageError) as unknown:
        find_program("cpu", Path("made/etdev.toml"))
    with pytest.raises(DeployError) as refused:
        make_release(project, "cpu")
    assert (unknown.value.hint, refused.value.hint) == (command, f"{command} first")
