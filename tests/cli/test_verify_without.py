"""``etdev verify FILE`` and ``etdev run`` where packages are missing: what can be asked is, the rest says why not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etdev.program import write
from support.files import chain
from support.on_devices import two_devices

pytestmark = pytest.mark.integration

SIMULATED = ("--device-map", "cuda:0=sim,cuda:1=sim")
_WITHOUT = """
import sys
for name in sys.argv[1].split():
    sys.modules[name] = None
from etdev.cli.app import run
sys.exit(run(sys.argv[2:]))
"""


def without(packages: str, *arguments: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    """A command line where these packages are not installed: exit code, JSON, stderr."""
    command = [sys.executable, "-c", _WITHOUT, packages, *arguments, "--output", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def checks(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    (file,) = found["files"]
    return {check["name"]: (check["status"], check["summary"]) for check in file["checks"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(two_devices(), tmp_path / "two.pte")
    write(chain(2), tmp_path / "chain.pte")
    return tmp_path


@pytest.mark.nightly
def test_a_device_program_is_replayed_without_executorch(folder: Path) -> None:
    code, found, _ = without("executorch", "verify", "two.pte", *SIMULATED, folder=folder)
    answers = checks(found)

    assert code == 0
    assert [answers[check][0] for check in ("bytes", "plan", "placement", "replay")] == ["passed"] * 4
    assert answers["kernels"][0] == "not run"
    assert answers["kernels"][1].startswith("the package 'executorch' is not installed")


@pytest.mark.nightly
def test_without_torch_nothing_is_replayed(folder: Path) -> None:
    code, found, _ = without("executorch torch", "verify", "two.pte", *SIMULATED, folder=folder)
    answers = checks(found)

    assert code == 0
    assert [answers[check][0] for check in ("bytes", "plan", "placement")] == ["passed"] * 3
    assert answers["replay"][0] == "not run"
    assert answers["replay"][1].startswith("the package 'torch' is not installed")
    assert without("executorch torch", "verify", "two.pte", "--require", "replay", folder=folder)[0] == 3


@pytest.mark.nightly
def test_a_program_is_run_without_executorch(folder: Path) -> None:
    code, found, _ = without("executorch", "run", "chain.pte", "--random", folder=folder)

    assert (code, found["runtime"], found["reason"]) == (0, "replay", "the package 'executorch' is not installed")


def test_without_torch_nothing_is_run(folder: Path) -> None:
    code, found, err = without("executorch torch", "run", "chain.pte", "--random", folder=folder)

    assert (code, found) == (3, {})
    assert err.startswith("error: running a program requires torch: the package 'torch' is not installed")
