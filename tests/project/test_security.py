"""docs/security.md: each of its sentences has a test that exists, and the tests that were nowhere else."""

from __future__ import annotations

import ast
import io
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etdev.program import write
from support.files import chain
from support.projects import LINEAR_CONFIG

_GUARD = """
import sys

FORBIDDEN = ("socket.connect", "socket.bind", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork",
             "pickle.find_class", "ctypes.dlopen")

def guard(event, arguments):
    if event in FORBIDDEN:
        raise SystemExit(f"{event}: {arguments}")

from etdev.cli import app
sys.addaudithook(guard)
for line in sys.argv[1:]:
    code = app.run(line.split())
    assert code in (0, 1), (line, code)
found = {"torch", "executorch", "model", "data"} & set(sys.modules)
assert not found, found
print("nothing else ran")
"""
"""Runs commands under a hook that ends the process if they do more than read and write files."""


def _guarded(folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, "-c", _GUARD, *commands]
    return subprocess.run(script, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_every_sentence_names_a_test_that_exists(repository: Path) -> None:
    text = (repository / "docs" / "security.md").read_text(encoding="utf-8")
    table = text.partition("## Each sentence and its test")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!sentence|---)(.+) \| `(tests/[\w/]+\.py)::(\w+)` \|$", table, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| ", table, re.MULTILINE)) - 1
    assert len(rows) >= 35
    for sentence, file, name in rows:
        tree = ast.parse((repository / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{sentence}: {file} has no {name}"


def test_commands_that_read_run_nothing(tmp_path: Path) -> None:
    write(chain(3), tmp_path / "a.pte")
    write(chain(4), tmp_path / "b.pte")
    done = _guarded(
        tmp_path, "inspect a.pte", "inspect a.pte --chart", "diff a.pte b.pte", "relink a.pte -o c.pte", "report a.pte"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("nothing else ran\n")
    assert (tmp_path / "a.html").is_file()


def test_commands_on_configs_run_nothing(tmp_path: Path) -> None:
    (tmp_path / "etdev.toml").write_text(LINEAR_CONFIG + "[targets.cpu]\n")
    for name in ("model.py", "data.py"):
        (tmp_path / name).write_text("raise SystemExit('code of the project ran')\nclass Linear: ...\n")
    done = _guarded(tmp_path, "validate", "config show", "config explain model.entry", "schema", "cache why cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("nothing else ran\n")


def test_the_guard_sees_what_it_guards_against(tmp_path: Path) -> None:
    """A hook that saw nothing would make the tests above pass."""
    script = _GUARD.replace("code = app.run(line.split())", "import os; os.system('true'); code = 0")
    command = [sys.executable, "-c", script, "x"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "os.system" in done.stderr) == (1, True)


def test_a_yaml_config_makes_no_objects(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "etdev.yaml").write_text(f"version: !!python/object/apply:os.system ['touch {marker}']\n")
    done = subprocess.run(
        [sys.executable, "-m", "etdev", "validate"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, marker.exists()) == (2, False)
    assert "is not supported" in done.stderr


def test_kept_outputs_are_not_unpickled(tmp_path: Path) -> None:
    """The cache stores outputs of quantized models in torch's format, which may hold any pickle."""
    torch = pytest.importorskip("torch", reason="needs the extra `build`")
    from etdev.pipeline.stages.known_outputs import KnownOutputs

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (tmp_path / "ran").touch, ()

    file = io.BytesIO()
    torch.save({"key": Trap()}, file)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    assert not KnownOutputs(file.getvalue())
    assert not (tmp_path / "ran").exists()
