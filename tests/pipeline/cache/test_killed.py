"""A build that is killed leaves nothing that a later one takes for whole (judging point 1 of the product; E2)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.errors import WriteError
from etdev.files import file_sha256
from etdev.pipeline.project.progress import Silent
from pipeline.cache.killing import contents, wrong_in_cache
from support.mounts import fill, small_disk
from support.projects import LINEAR, LINEAR_CONFIG, write_project

pytestmark = pytest.mark.integration

TARGET = """
    [targets.cpu]
    etrecord = true
"""


def run_killing(folder: Path, *moments: str) -> dict[str, Any]:
    """What :mod:`killing` found."""
    write_project(folder, LINEAR_CONFIG + TARGET, model=LINEAR)
    script = Path(__file__).with_name("killing.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder), *moments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any], moments: list[str]) -> None:
    good = {"code": 0, "differs": [], "cache": [], "again": 0}
    assert [trial["moment"] for trial in found["trials"]] == moments
    assert all(trial.pop("killed") or trial["moment"].startswith("t") for trial in found["trials"])
    assert [trial for trial in found["trials"] if trial != {"moment": trial["moment"], **good}] == []


@pytest.mark.parametrize(
    "moments", [["e9"], pytest.param(["t0.3", "e25"], marks=pytest.mark.nightly)], ids=["while it writes", "others"]
)
def test_killed_at_some_moments(tmp_path: Path, moments: list[str]) -> None:
    """While the program is written; early, and while the cache is written."""
    found = run_killing(tmp_path, *moments)
    check(found, moments)
    assert found["changes"] > 25
    assert set(found["files"]) >= {"build/cpu/tiny.pte", "build/cpu/tiny.etrecord", "etdev.lock"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_change_and_at_random_moments(tmp_path: Path) -> None:
    changes = run_killing(tmp_path)["changes"]
    moments = [f"e{number}" for number in range(1, changes + 1)]
    chance = random.Random(0)
    moments += [f"t{chance.random():.3f}" for _ in range(max(0, 200 - changes))]
    check(run_killing(tmp_path, *moments), moments)


class _Other(Silent):
    """Begins another build of the same target, with another setting, just before the first one writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = ""
        self.process: subprocess.Popen[str] | None = None

    def started(self, target: str, stage: str) -> None:
        if stage == "write":
            command = [
                sys.executable,
                "-m",
                "etdev",
                "build",
                "--no-verify",
                "--set",
                "targets.cpu.memory.alignment=1024",
            ]
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            assert self.process.stderr is not None
            while "wait" not in self.said and (line := self.process.stderr.readline()):
                self.said += line


def test_a_second_build_of_the_same_output_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then its files are there, and all of them are its own."""
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(tmp_path / "cache"))
    config = write_project(tmp_path, LINEAR_CONFIG + TARGET, model=LINEAR)
    other = _Other(tmp_path)
    first = etdev.build(config, verify=False, progress=other)
    assert other.process is not None
    said = other.said + other.process.communicate(timeout=60)[1]
    assert other.process.returncode == 0, said
    assert f"cpu: wait for another build of this target (process {os.getpid()})\n" in said
    assert said.index("(process") < said.index("cpu: link")

    report = json.loads((tmp_path / "build/cpu/report.json").read_text())["targets"][0]
    assert report["sha256"] == file_sha256(tmp_path / "build/cpu/tiny.pte") != first["cpu"].sha256
    together = contents(tmp_path)
    etdev.build(config, verify=False, cache=False, overrides=["targets.cpu.memory.alignment=1024"])
    assert {**contents(tmp_path), "etdev.lock": ""} == {**together, "etdev.lock": ""}
    assert wrong_in_cache(tmp_path / "cache") == []
    assert sorted(path.name for path in (tmp_path / "build").iterdir()) == ["cpu", "results.json"]
    assert sorted(path.name for path in (tmp_path / "build" / "cpu").iterdir()) == [
        "report.json",
        "tiny.etrecord",
        "tiny.object.etrecord",
        "tiny.object.json",
        "tiny.object.pte",
        "tiny.pte",
    ]


@pytest.mark.parametrize("full", ["build", "cache"])
@pytest.mark.sampled(1)
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    """Where the build writes it fails, and is whole when there is room again; a full cache fails no build."""
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(tmp_path / "cache"))
    config = write_project(tmp_path, LINEAR_CONFIG + TARGET, model=LINEAR)
    with small_disk(tmp_path / full, "size=256k") as disk:
        fill(disk)
        if full == "build":
            with pytest.raises(WriteError, match="no space left on the device"):
                etdev.build(config, verify=False)
        else:
            result = etdev.build(config, verify=False)
            assert result.ok
            assert any("no space left" in note for note in result.notes)
        assert [path.name for path in disk.rglob("*") if path.is_file() and path.stat().st_size] == ["filler"]
        (disk / "filler").unlink()
        assert etdev.build(config, verify=False)["cpu"].seconds
        whole = contents(tmp_path)
        assert etdev.build(config, verify=False)["cpu"].seconds == {}
        assert contents(tmp_path) == whole
        assert wrong_in_cache(tmp_path / "cache") == []
