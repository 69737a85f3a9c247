"""Shell completion: commands, and the names that stand in the config."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOML = """
version = 1
model.entry = "not:complete"
targets.phone = {}
targets.photo = {}
targets.watch = {}
profiles.ci = {}
"""
YAML = "targets: {phone: {}, board: {}}\n"


def _complete(line: str, folder: Path) -> list[str]:
    """What the shell would offer for the last word of a command line."""
    words = line.split(" ")
    environment = os.environ | {
        "_ETDEV_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-m", "etdev"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "etdev.toml").write_text(TOML)
    (tmp_path / "other.yaml").write_text(YAML)
    (tmp_path / "broken.toml").write_text("targets = [")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("etdev va", ["validate"]),
        ("etdev config ", ["show", "explain"]),
        ("etdev build -t ph", ["phone", "photo"]),
        ("etdev build ph", ["phone", "photo"]),
        ("etdev inspect -t ph", ["phone", "photo"]),
        ("etdev build -p ", ["ci"]),
        ("etdev build -c other.yaml -t ", ["board", "phone"]),
        ("etdev build -c broken.toml -t ", []),
        ("etdev build -c broken.toml -c other.yaml -t ", ["board", "phone"]),
        ("etdev build -c missing.toml -t ", []),
        ("etdev init --template min", ["minimal"]),
    ],
)
@pytest.mark.sampled(4)
def test_completion(line: str, offered: list[str], folder: Path) -> None:
    assert _complete(line, folder) == offered
