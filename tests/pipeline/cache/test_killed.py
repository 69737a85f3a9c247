"""A build that is killed leaves nothing that a later one takes for whole (judging point 1 of the product; E2)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.errors import WriteError
from pipeline.cache.killing import contents, wrong_in_cache
from support.mounts import fill, small_disk
from support.projects import LINEAR, LINEAR_CONFIG, write_project

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


def test_killed_at_some_moments(tmp_path: Path) -> None:
    """Early, while the program is written, and while the cache is."""
    moments = ["t0.3", "e9", "e25"]
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


def test_two_builds_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(tmp_path / "cache"))
    write_project(tmp_path, LINEAR_CONFIG + TARGET, model=LINEAR)
    command = [sys.executable, "-m", "etdev", "build", "--no-verify", "-q"]
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(subprocess.run, command, cwd=tmp_path, capture_output=True, text=True) for _ in range(2)]
    for run in runs:
        assert run.result().returncode == 0, run.result().stderr
    together = contents(tmp_path)
    etdev.build(tmp_path / "etdev.toml", verify=False, cache=False)
    assert contents(tmp_path) == together
    assert wrong_in_cache(tmp_path / "cache") == []
    assert sorted(path.name for path in (tmp_path / "build" / "cpu").iterdir()) == [
        "report.json",
        "tiny.etrecord",
        "tiny.object.etrecord",
        "tiny.object.json",
        "tiny.object.pte",
        "tiny.pte",
    ]


@pytest.mark.parametrize("full", ["build", "cache"])
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
