"""E3: every template is a project that does what its own README says, as generated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from etdev.cli import app
from etdev.templates import TEMPLATES, render


def commands(document: str) -> list[str]:
    """The commands that a document has, those that install something left out: its indented lines."""
    lines = re.findall(r"^ {4}(.*)$", document, re.MULTILINE)
    return [line for line in lines if "pip install" not in line]


def run_script(lines: list[str], folder: Path, **variables: str) -> str:
    """Run the lines in one shell, which ends at the first that fails; what they print."""
    binaries = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": os.pathsep.join((binaries, os.environ["PATH"])), **variables}
    command = ["bash", "-euxo", "pipefail", "-c", "\n".join(lines)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def passed(report: Path) -> set[str]:
    """The rungs that passed of all the targets of a report, none of which failed."""
    rungs = [rung for target in json.loads(report.read_text())["targets"] for rung in target["rungs"]]
    assert not [rung for rung in rungs if rung["status"] == "failed"]
    return {rung["rung"] for rung in rungs if rung["status"] == "passed"}


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_placeholder_is_filled(template: str) -> None:
    assert not [path for path, content in render(template, "x").items() if re.search(rb"\{\{\w+\}\}", content)]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_files_are_those_of_its_folder(template: str, repository: Path) -> None:
    folder = repository / "src" / "etdev" / "templates" / template
    stored = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    written = {path.removeprefix(".") for path in TEMPLATES[template].files}
    assert {path for path in stored if "__pycache__" not in path} == written


@pytest.mark.parametrize(
    "template", [name if name == "minimal" else pytest.param(name, marks=pytest.mark.slow) for name in TEMPLATES]
)
def test_the_commands_of_its_readme_work(template: str, tmp_path: Path) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    folder = tmp_path / "project"
    assert app.run(["init", str(folder), "--template", template]) == 0

    wanted = commands((folder / "README.md").read_text())
    assert any(TEMPLATES[template].build in line for line in wanted)
    run_script(wanted, folder)

    reports = list(folder.glob("build/*/report.json"))
    assert reports
    for report in reports:
        assert {"bytes", "plan", "accuracy"} <= passed(report)


def test_the_commented_target_of_minimal_works(tmp_path: Path) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    assert app.run(["init", str(tmp_path / "project")]) == 0
    config = tmp_path / "project" / "etdev.toml"
    active, _, commented = config.read_text().partition("#\n# [quantize.int8]")
    config.write_text(active + "[quantize.int8]" + commented.replace("\n# ", "\n").replace("\n#\n", "\n"))
    assert app.run(["build", "-c", str(config), "-t", "cpu-int8"]) == 0
