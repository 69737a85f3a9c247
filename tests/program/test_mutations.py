"""A program with mistakes is refused, or it is read, inspected, linked and verified."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etdev.program import write
from program import hand, mutation_trials
from support.on_devices import two_devices

pytestmark = pytest.mark.integration

if TYPE_CHECKING:
    from program.real import RealFile

FILES = ("portable", "branches", "loops", "state", "dynamic")


def _trials(folder: Path, make_real: Callable[[str], RealFile], seed: int, count: int) -> dict[str, Any]:
    for name, program in {"everything": hand.everything(), "loop": hand.loop(), "devices": two_devices()}.items():
        write(program, folder / f"{name}.pte")
    files = [*sorted(folder.glob("*.pte")), *(make_real(name).pte for name in FILES)]
    command = [sys.executable, mutation_trials.__file__, folder, seed, count, *files]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert not found["wrong"]
    assert found["peak"] < mutation_trials.BYTES
    return found


def test_mutated_programs(make_real: Callable[[str], RealFile], tmp_path: Path) -> None:
    ends = _trials(tmp_path, make_real, seed=0, count=2000)["ends"]
    assert ends["read"] > 1000
    assert ends["linked"] > 800
    for end in ("refused", "not linked", "plan failed", "placement failed", "replay failed", "replay passed"):
        assert ends[end] > 10, end


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 6))
def test_many_mutated_programs(make_real: Callable[[str], RealFile], tmp_path: Path, seed: int) -> None:
    _trials(tmp_path, make_real, seed, count=10_000)
