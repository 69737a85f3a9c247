"""Commands that need no model start at once, and import neither torch nor executorch nor numpy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAVY = {"torch", "executorch", "numpy", "torchao", "transformers"}

_SPY = """
import json, sys
from etdev.cli.app import run
code = run(sys.argv[2:])
open(sys.argv[1], "w").write(json.dumps({"code": code, "modules": sorted({m.partition(".")[0] for m in sys.modules})}))
"""


def _modules_after(arguments: list[str], folder: Path) -> set[str]:
    answer = folder / "answer.json"
    command = [sys.executable, "-c", _SPY, str(answer), *arguments]
    subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=60)
    found = json.loads(answer.read_text())
    assert found["code"] == 0
    return set(found["modules"])


def _best_of_five(arguments: list[str], folder: Path) -> float:
    """Seconds of a whole process, as a user waits for it."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "etdev", *arguments], cwd=folder, capture_output=True, check=True, timeout=60
        )
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=" ".join)
def test_help_imports_nothing_of_the_configs(arguments: list[str], tmp_path: Path) -> None:
    assert not _modules_after(arguments, tmp_path) & (HEAVY | {"pydantic", "ruamel", "tree_sitter"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["init", "--list"],
        ["validate"],
        ["config", "show"],
        ["config", "explain", "model.entry"],
        ["schema"],
        ["build", "--help"],
        ["verify", "--help"],
        ["--show-completion", "bash"],
    ],
    ids=" ".join,
)
def test_commands_that_need_no_model_import_nothing_heavy(arguments: list[str], project: Path) -> None:
    assert not _modules_after(arguments, project) & HEAVY


def test_help_starts_in_300_ms(tmp_path: Path) -> None:
    assert _best_of_five(["--help"], tmp_path) < 0.3


def test_validate_takes_500_ms(repository: Path) -> None:
    for config in sorted(repository.glob("examples/*/etdev.*")):
        assert _best_of_five(["validate", "-c", str(config)], repository) < 0.5


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project as ``etdev init`` writes it."""
    from etdev.templates import render
    from etdev.templates.create import create_project

    create_project(tmp_path / "project", render("minimal", "project"))
    return tmp_path / "project"
