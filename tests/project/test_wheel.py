"""The wheel alone, in an empty environment: all that works on configs and files works without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

# One process makes the wheel and its environment.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this repository."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(repository)]
    subprocess.run(command, check=True, timeout=120)
    (built,) = folder.glob("etdev-*.whl")
    return built


@pytest.fixture(scope="module")
def binaries(wheel: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commands of an environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    constraints = str(repository / "constraints.txt")
    command = [str(folder / "bin" / "pip"), "install", "--quiet", "--constraint", constraints, str(wheel)]
    subprocess.run(command, check=True, timeout=240)
    return folder / "bin"


def _run(binaries: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(binaries), "HOME": str(folder), "PYTHONPATH": ""}
    environment |= {name: value for name, value in os.environ.items() if name in {"LANG", "LC_ALL", "TMPDIR"}}
    command = [str(binaries / "etdev"), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_holds_the_package_and_nothing_else(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0] for name in names} == {"etdev", wheel.name.rpartition("-py3")[0] + ".dist-info"}
    assert "etdev/py.typed" in names
    sources = repository / "src"
    folders = [sources / "etdev" / name for name in ("templates", "runner/project", "runtime/native/host")]
    stored = {str(path.relative_to(sources)) for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert {name for name in stored if "__pycache__" not in name} <= names


def test_brings_no_torch(binaries: Path) -> None:
    listed = subprocess.run([binaries / "pip", "list", "--format", "json"], capture_output=True, check=True, timeout=60)
    names = {package["name"].lower() for package in json.loads(listed.stdout)}
    assert "etdev" in names
    assert not names & {"torch", "executorch", "torchao", "transformers", "openvino", "numba"}


def test_works_on_configs_and_says_what_a_build_needs(binaries: Path, tmp_path: Path) -> None:
    created = _run(binaries, "init", "project", folder=tmp_path)
    assert created.returncode == 0, created.stderr
    project = tmp_path / "project"

    for arguments in (["validate"], ["config", "show"], ["config", "explain", "model.entry"], ["schema"], ["--help"]):
        done = _run(binaries, *arguments, folder=project)
        assert done.returncode == 0, (arguments, done.stderr)
    assert json.loads(_run(binaries, "schema", folder=project).stdout)["properties"]

    build = _run(binaries, "build", folder=project)
    assert build.returncode == 3
    assert 'pip install "etdev[build]"' in build.stderr
    assert [path.name for path in (project / "build").rglob("*")] == ["results.json"]


def test_doctor_says_what_is_missing(binaries: Path, tmp_path: Path) -> None:
    outside = _run(binaries, "doctor", folder=tmp_path)
    assert outside.returncode == 0, outside.stderr
    assert 'pip install "etdev[build]"' in outside.stdout

    _run(binaries, "init", folder=tmp_path)
    inside = _run(binaries, "doctor", "--output", "json", folder=tmp_path)
    assert inside.returncode == 3
    assert {"model", "model.weights", "targets.cpu.partitioners[0].backend"} == {
        need["key"] for need in json.loads(inside.stdout)["needs"]
    }


def test_what_is_published_is_as_the_index_takes_it(wheel: Path) -> None:
    """The metadata, and the front page as the index shows it."""
    pytest.importorskip("twine", reason="needs the dependency group `release`")
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
