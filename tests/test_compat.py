"""Which versions of ExecuTorch etdev works with, and that every command says the range where it meets another."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from etdev import backends, compat
from etdev.program import write
from support.commands import run_etdev
from support.files import chain
from support.projects import LINEAR, LINEAR_CONFIG, write_project

CONFIG = LINEAR_CONFIG + "[targets.cpu]\n"
REFUSAL = "executorch 1.6.0 is installed, and this etdev supports executorch>=1.4.1,<1.6"


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("1.4.0", False),
        ("1.4.1", True),
        ("1.4.1.post1", True),
        ("1.4.2+cpu", True),
        ("1.5", True),
        ("1.5.1", True),
        ("1.5.0a0+25d1ee7", True),
        ("1.6.0a0+cpu", False),
        ("1.10.0", False),
        ("2", False),
        ("0.7.0", False),
        ("unknown", False),
    ],
)
def test_supported_versions(version: str, supported: bool) -> None:
    assert compat.is_supported(version) is supported


def test_cortex_m_needs_a_newer_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat.metadata, "version", lambda _: "1.5.0")
    assert compat.lacks_cortex_m() is None
    monkeypatch.setattr(compat.metadata, "version", lambda _: "1.4.1")
    found = backends.get("cortex-m").availability()
    assert not found.available
    assert found.reason == "executorch 1.4.1 is installed, and lowering for Cortex-M needs 1.5 or later"


def test_every_place_states_the_same_versions(repository: Path) -> None:
    pyproject = tomllib.loads((repository / "pyproject.toml").read_text())
    assert compat.SUPPORTED in pyproject["project"]["optional-dependencies"]["build"]
    assert all(map(compat.is_supported, compat.TESTED))
    newest, *older = compat.TESTED
    assert f"executorch=={newest}\n" in (repository / "constraints.txt").read_text()
    hashed = (repository / ".ci" / "executorch-hashed.txt").read_text()
    assert re.findall(r"^executorch==(\S+) \\$", hashed, re.MULTILINE) == older


@pytest.fixture
def newer(tmp_path: Path) -> dict[str, str]:
    """An environment in which the metadata of a newer executorch come first."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    metadata = tmp_path / "newer" / "executorch-1.6.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: executorch\nVersion: 1.6.0\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(tmp_path / "newer"), os.environ.get("PYTHONPATH"))))}


@pytest.mark.parametrize("arguments", [["build"], ["build", "--dry-run"], ["verify"]])
@pytest.mark.sampled(1)
def test_a_config_is_refused(tmp_path: Path, newer: dict[str, str], arguments: list[str]) -> None:
    write_project(tmp_path, CONFIG, model=LINEAR)
    if arguments == ["verify"]:
        artifact = tmp_path / "build" / "cpu" / "tiny.pte"
        artifact.parent.mkdir(parents=True)
        artifact.write_bytes(b"not looked into")
    done = run_etdev(*arguments, folder=tmp_path, env=newer)
    assert (done.returncode, done.stdout) == (3, "")
    assert REFUSAL in done.stderr
    assert 'help: pip install "executorch==1.5.1"' in done.stderr


@pytest.mark.integration
@pytest.mark.nightly
def test_files_are_checked_without_its_runtime(tmp_path: Path, newer: dict[str, str]) -> None:
    write(chain(2), tmp_path / "chain.pte")
    done = run_etdev("verify", "chain.pte", folder=tmp_path, env=newer)
    assert done.returncode == 0
    assert REFUSAL in done.stdout
    done = run_etdev("run", "chain.pte", "--random", "--runtime", "stock", folder=tmp_path, env=newer)
    assert done.returncode == 3
    assert REFUSAL in done.stderr


def test_doctor_says_it(tmp_path: Path, newer: dict[str, str]) -> None:
    done = run_etdev("doctor", folder=tmp_path, env=newer)
    assert done.returncode == 0
    said = " ".join(done.stdout.split())
    assert f'executorch 1.6.0 error: {REFUSAL}: pip install "executorch==1.5.1"' in said
    assert f"runtime not available: {REFUSAL}" in said
    write_project(tmp_path, CONFIG, model=LINEAR)
    done = run_etdev("doctor", folder=tmp_path, env=newer)
    assert done.returncode == 3
    assert f"model: {REFUSAL}" in done.stdout


@pytest.mark.integration
@pytest.mark.nightly
def test_doctor_warns_of_neither_tested_version(tmp_path: Path) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    if compat.installed() not in compat.TESTED:
        pytest.skip(f"executorch {compat.installed()} is installed, which is not a tested version")
    done = run_etdev("doctor", folder=tmp_path)
    assert done.returncode == 0
    assert "warning" not in done.stdout
