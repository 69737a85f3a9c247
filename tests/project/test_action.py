"""E2: the composite action and the pre-commit hook of this repository do what they say; GitHub itself is not asked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from etdev.cli import app
from support.projects import LINEAR, LINEAR_CONFIG, write_project

pytestmark = pytest.mark.integration

_SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
"""What GitHub runs a step's script with."""
_TARGETS = "[targets.cpu]\n[targets.other]\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project", LINEAR_CONFIG + _TARGETS, model=LINEAR).parent


def _action(repository: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe", pure=True).load(repository / "action.yml")
    return loaded


def _run(repository: Path, folder: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run the action's build step as GitHub does: how it ended, and the action's outputs."""
    action = _action(repository)
    (step,) = [step for step in action["runs"]["steps"] if step.get("id") == "build"]
    values = {f"inputs.{name}": inputs.pop(name, item["default"]) for name, item in action["inputs"].items()}
    values["runner.temp"] = str(folder.parent)
    assert not inputs

    def filled(text: str) -> str:
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda match: values[match[1]], text)

    assert "${{" not in step["run"], "an input that becomes a part of the script can run commands"
    output = folder.parent / "output"
    output.write_text("")
    binaries = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    given = {name: filled(text) for name, text in step["env"].items()}
    environment = {**os.environ, **given, "PATH": binaries, "GITHUB_OUTPUT": str(output)}
    environment["RUNNER_TEMP"] = values["runner.temp"]
    command = [*_SHELL, step["run"]]
    cwd = folder / filled(step["working-directory"])
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=200)
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    named = {name: item["value"].removeprefix("${{ steps.build.outputs.") for name, item in action["outputs"].items()}
    return done, {name: outputs[value.removesuffix(" }}")] for name, value in named.items()}


def test_the_action_passes_its_inputs_on(repository: Path, project: Path) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    (project / "etdev.toml").rename(project / "my config.toml")
    inputs = {"config": "my config.toml", "targets": "c* nothing", "args": "--dry-run --set project.name=y"}
    done, outputs = _run(repository, project, **inputs)

    assert done.returncode == 2
    assert "nothing" in done.stdout
    done, outputs = _run(repository, project, **inputs | {"targets": "c* cpu"})
    assert done.returncode == 0, done.stderr
    report = json.loads(Path(outputs["report"]).read_text())
    assert report["targets"] == ["cpu"]
    assert "cpu" in Path(outputs["markdown"]).read_text()
    assert json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"] == []


@pytest.mark.nightly
def test_the_action_takes_inputs_of_several_lines(repository: Path, project: Path) -> None:
    """An argument of a line that is not the first may be a gate, such as ``--locked``."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    inputs = {"targets": "cpu\nother\n", "args": "--dry-run\n--set project.nope=1\n"}
    done, _ = _run(repository, project, **inputs)
    assert done.returncode == 2
    assert "project.nope" in done.stdout

    done, outputs = _run(repository, project, **inputs | {"args": "--dry-run\n--quiet\n"})
    assert done.returncode == 0, done.stderr
    assert json.loads(Path(outputs["report"]).read_text())["targets"] == ["cpu", "other"]


def test_the_action_fails_as_etdev_does(repository: Path, project: Path) -> None:
    with (project / "etdev.toml").open("a") as file:
        file.write("nope = 1\n")
    done, outputs = _run(repository, project.parent, **{"working-directory": "project"})

    assert done.returncode == 2
    assert done.stdout.startswith("::error file=")
    (result,) = json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"]
    assert result["ruleId"] == "unknown-key"


@pytest.mark.nightly
def test_two_uses_in_a_job_have_reports_of_their_own(repository: Path, project: Path) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    uses = [_run(repository, project, targets=name, args="--dry-run")[1] for name in ("cpu", "other")]
    assert [json.loads(Path(use["report"]).read_text())["targets"] for use in uses] == [["cpu"], ["other"]]


@pytest.mark.parametrize(
    ("version", "extras", "arguments"),
    [
        ("", "build", ["python", "/an action/.ci/install.py", "--extras", "build"]),
        ("1.2", "build,hf", ["pip", "install", "etdev[build,hf]==1.2"]),
    ],
)
def test_the_action_installs_what_is_asked_for(
    repository: Path, tmp_path: Path, version: str, extras: str, arguments: list[str]
) -> None:
    """By default itself, with the files that it was tested with, each checked against its hash."""
    action = _action(repository)
    assert action["inputs"]["extras"]["default"] == "build"
    steps = action["runs"]["steps"]
    assert all(step.get("shell") == "bash" for step in steps if "run" in step)
    (install,) = [step for step in steps if "pip install" in step.get("run", "")]
    names = {name: text.removeprefix("${{ ").removesuffix(" }}") for name, text in install["env"].items()}
    values = {"inputs.version": version, "inputs.extras": extras, "github.action_path": "/an action"}
    for command in ("pip", "python"):
        (tmp_path / command).write_text(f'#!/bin/sh\nprintf "%s\\n" {command} "$@"\n')
        (tmp_path / command).chmod(0o755)

    environment = {name: values[value] for name, value in names.items()}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([*_SHELL, install["run"]], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == arguments, done.stderr


@pytest.mark.slow
def test_the_hook_of_this_repository_works(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pre-commit clones the repository and installs etdev into an environment of its own, which needs no torch."""
    pytest.importorskip("pre_commit", reason="needs pre-commit")
    if not (repository / ".git").exists():
        pytest.skip("this is not a git checkout")
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_CONSTRAINT", str(repository / "constraints.txt"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "project"
    assert app.run(["init", str(folder), "-q"]) == 0
    assert app.run(["init", str(folder / "second"), "-q"]) == 0
    (folder / "second" / "etdev.toml").write_text("version = 1\nnope = 1\n")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=folder, check=True, timeout=60)

    command = [sys.executable, "-m", "pre_commit", "try-repo", str(repository), "etdev-validate", "--all-files"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "- exit code: 2" in done.stdout
    assert "error: second/etdev.toml:2:1: unknown key `nope`" in done.stdout
    assert "error: etdev.toml" not in done.stdout
