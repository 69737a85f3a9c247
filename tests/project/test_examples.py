"""Examples: the commands of each README work, and print what the README shows.

``EXAMPLES_CACHE`` names a cache in which `.ci/run` has built some of them already.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etdev.cli.app import run
from etdev.runtime.native.toolchain import Missing, find_toolchain
from etdev.templates import render
from support import pages

pytest.importorskip("executorch", reason="needs the extra `build`")

EXAMPLES = Path(__file__).parents[2] / "examples"
ELSEWHERE = {"llm": "tests/cli/test_templates.py", "mcu": "tests/project/test_mcu_page.py"}
"""Examples whose commands another test runs."""
NOT_RUN = ("python train.py",)
"""Commands that take minutes."""
FROM_CACHE = "  note       unchanged: taken from the cache\n"
LONG = ("segmentation", "speech", "text", "transformer")
"""Examples that take a minute."""
LARGEST = 300 * 1024
"""Bytes of an example's files."""


def _names() -> list[str]:
    return sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))


def _run(line: str, folder: Path) -> tuple[int, str]:
    """Run a command of a README. A script has a process of its own, since it loads ExecuTorch's runtime."""
    program, *arguments = shlex.split(line, comments=True)
    if program != "python":
        return pages.run(line, folder)
    command = [sys.executable, *arguments]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=800)
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


@pytest.mark.parametrize("config", sorted(EXAMPLES.glob("*/etdev.[ty]*ml")), ids=lambda config: config.parent.name)
def test_its_config_is_valid(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "-c", str(config)]) == 0


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly) if name in LONG else name
        for name in _names()
        if name not in ELSEWHERE
    ],
)
def test_the_commands_of_its_readme_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(find_toolchain(), Missing):
        pytest.skip("the READMEs show the check `native`, which needs a C++ compiler")
    if cache := os.environ.get("EXAMPLES_CACHE"):
        monkeypatch.setenv("ETDEV_CACHE_DIR", cache)
    folder = tmp_path / "examples" / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("build", "__pycache__", "etdev.lock"))
    text = (folder / "README.md").read_text(encoding="utf-8")
    commands = pages.commands(text)
    assert any(command.line.startswith("etdev build") for command in commands)
    for command in commands:
        if command.line.startswith(NOT_RUN):
            continue
        code, printed = _run(command.line, folder)
        assert code == 0, f"{command.line}\n{printed}"
        if command.shown is not None:
            pages.assert_shown(command.shown, printed.replace(FROM_CACHE, ""))


def test_the_commands_of_llm_are_those_of_its_template() -> None:
    """``tests/cli/test_templates.py`` runs the commands of the template's own README."""

    def lines(text: str) -> list[str]:
        return [" ".join(shlex.split(command.line, comments=True)) for command in pages.commands(text)]

    first, second, *commands = lines((EXAMPLES / "llm" / "README.md").read_text(encoding="utf-8"))
    assert (first, second) == ("etdev init my-llm --template llm", "cd my-llm")
    assert len(commands) == 2
    assert set(commands) <= set(lines(render("llm", "my-llm")["README.md"].decode()))


@pytest.mark.parametrize("name", _names())
def test_an_example_is_small(name: str) -> None:
    """The repository keeps every version of its files."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."],
        cwd=EXAMPLES / name,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    files = [EXAMPLES / name / line for line in listed.stdout.splitlines()]
    assert sum(path.stat().st_size for path in files if path.exists()) <= LARGEST
