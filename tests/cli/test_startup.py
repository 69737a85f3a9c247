"""Commands that need no model start at once, and import neither torch nor executorch nor numpy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from etdev.program import write
from support.files import chain
from support.projects import LINEAR, LINEAR_CONFIG, write_project
from support.reports import write_report
from support.speed import command_time, usual_seconds

HEAVY = {"torch", "executorch", "numpy", "torchao", "transformers"}

_SPY = """
import json, sys
from etdev.cli.app import run
code = run(sys.argv[2:])
open(sys.argv[1], "w").write(json.dumps({"code": code, "modules": sorted(sys.modules)}))
"""


def _modules_after(arguments: list[str], folder: Path) -> set[str]:
    answer = folder / "answer.json"
    command = [sys.executable, "-c", _SPY, str(answer), *arguments]
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # There may be no shell.
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True, timeout=60)
    found = json.loads(answer.read_text())
    assert found["code"] == 0
    return set(found["modules"])


def _seconds(arguments: list[str], folder: Path, limit: float) -> float:
    """Return the seconds of processor time that ``etdev`` takes on a usual machine."""
    return usual_seconds(lambda: command_time([sys.executable, "-m", "etdev", *arguments], folder), limit)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=" ".join)
def test_help_imports_nothing_of_the_configs(arguments: list[str], tmp_path: Path) -> None:
    assert not _modules_after(arguments, tmp_path) & (HEAVY | {"pydantic", "ruamel", "tree_sitter"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate"],
        ["init", "--list"],
        ["config", "show"],
        ["config", "explain", "model.entry"],
        ["schema"],
        ["build", "--help"],
        ["deploy", "--help"],
        ["verify", "--help"],
        ["--show-completion", "bash"],
    ],
    ids=" ".join,
)
@pytest.mark.sampled(4)
def test_commands_that_need_no_model_import_nothing_heavy(arguments: list[str], project: Path) -> None:
    assert not _modules_after(arguments, project) & HEAVY


def test_validate_imports_no_results_of_builds(project: Path) -> None:
    """Their models take a sixth of its time."""
    assert "etdev.pipeline.results.result" not in _modules_after(["validate"], project)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["inspect", "{file}"], set()),
        (["inspect", "{file}", "--output", "json"], set()),
        (["inspect", "{file}", "--chart"], set()),
        (["report", "{file}", "--output", "html={folder}/page.html"], set()),
        (["diff", "{file}", "{file}", "--output", "md"], set()),
        pytest.param(
            ["verify", "{file}"],
            {"numpy", "torch"},  # For the replay. The stock runtime is another process.
            marks=pytest.mark.nightly,
        ),
        (["relink", "{file}", "-o", "{folder}/small.pte"], set()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.sampled(3)
def test_commands_on_files_import_nothing_heavy(
    arguments: list[str], allowed: set[str], repository: Path, tmp_path: Path
) -> None:
    file = repository / "tests" / "program" / "data" / "loop.pte"
    filled = [item.format(file=file, folder=tmp_path) for item in arguments]
    assert not _modules_after(filled, tmp_path) & (HEAVY - allowed)


@pytest.mark.parametrize("arguments", [["inspect", "cpu"], ["diff", "cpu", "cpu"], ["report", "cpu"]], ids=" ".join)
@pytest.mark.sampled(1)
def test_commands_on_targets_import_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    write_project(tmp_path, f"{LINEAR_CONFIG}[targets.cpu]\n", model=LINEAR)
    (tmp_path / "build" / "cpu").mkdir(parents=True)
    write(chain(1), tmp_path / "build" / "cpu" / "tiny.pte")
    assert not _modules_after(arguments, tmp_path) & HEAVY


@pytest.mark.parametrize("with_report", [False, True])
@pytest.mark.parametrize(
    "command",
    [["inspect", "a.pte"], ["diff", "a.pte", "a.pte"], "inspect('a.pte')", "diff('a.pte', 'a.pte')"],
    ids=["inspect", "diff", "API inspect", "API diff"],
)
@pytest.mark.sampled(2)
def test_results_are_imported_for_a_report_only(command: list[str] | str, with_report: bool, tmp_path: Path) -> None:
    """A program's banks are in the report next to it. The models of reports take 0.2 s to import."""
    write(chain(1), tmp_path / "a.pte")
    if with_report:
        write_report(tmp_path / "a.pte")
    if isinstance(command, list):
        found = _modules_after(command, tmp_path)
    else:
        code = f"from etdev import diff, inspect; {command}; import sys; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        found = set(done.stdout.split())
        assert ("pydantic" in found) == with_report
    assert "etdev.inspection.provenance" in found
    assert ("etdev.pipeline.results.result" in found) == with_report


@pytest.mark.integration
@pytest.mark.nightly
def test_files_of_a_thousand_instructions(tmp_path: Path) -> None:
    """Twice what they may take, where ``benchmarks/files.py`` holds them to it."""
    file = tmp_path / "long.pte"
    write(chain(1000), file)
    assert _seconds(["inspect", str(file)], tmp_path, 1) < 1
    assert _seconds(["relink", str(file), "-o", str(tmp_path / "small.pte")], tmp_path, 2) < 2


def test_help_takes_120_ms(tmp_path: Path) -> None:
    assert _seconds(["--help"], tmp_path, 0.12) < 0.12


@pytest.mark.parametrize("config", ["mcu/etdev.toml", "transformer/etdev.yaml"])
@pytest.mark.sampled(1)
def test_validate_takes_400_ms(config: str, repository: Path) -> None:
    """The longest config of the examples in each format."""
    assert _seconds(["validate", "-c", f"examples/{config}"], repository, 0.4) < 0.4


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project as ``etdev init`` writes it."""
    from etdev.templates import render
    from etdev.templates.create import create_project, plan_project

    create_project(plan_project(tmp_path / "project", render("minimal", "project")))
    return tmp_path / "project"


def test_deploying_imports_nothing_heavy(tmp_path: Path) -> None:
    from pipeline.test_deploy import built

    built(tmp_path)
    for arguments in (["deploy", "here", "--dry-run"], ["deploy", "here"], ["deploy", "here", "--list"]):
        assert not _modules_after(arguments, tmp_path) & (HEAVY | {"asyncssh", "boto3"})


@pytest.mark.parametrize("arguments", [["--version"], ["validate"], ["build"]], ids=" ".join)
def test_a_system_without_fcntl_is_told_what_to_use(arguments: list[str], tmp_path: Path) -> None:
    """Windows has no such module."""
    script = "import sys; sys.modules['fcntl'] = None; from etdev.__main__ import main; main()"
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: etdev does not run on Windows\nhelp: use WSL, which is Linux\n"
