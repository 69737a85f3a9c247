"""A damaged file is refused, or it is read, inspected and linked, in little time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etdev.program import write
from program import damage, hand

if TYPE_CHECKING:
    from program.real import RealFile

FILES = ("portable", "branches", "state", "methods", "dynamic", "external", "xnnpack", "xnnpack_inline")


def _files(folder: Path, make_real: Callable[[str], RealFile]) -> list[Path]:
    write(hand.everything(), folder / "everything.pte")
    write(hand.loop(), folder / "loop.pte")
    return [folder / "everything.pte", folder / "loop.pte", *(make_real(name).pte for name in FILES)]


def _damage(folder: Path, files: list[Path], counts: tuple[int, int, int], seed: int) -> dict[str, Any]:
    command = [sys.executable, damage.__file__, folder, seed, *counts, *files]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert not found["wrong"]
    assert set(found["ends"]) <= {"refused", "unknown fields", "linked", "not linked"}
    assert sum(found["ends"].values()) == sum(counts)
    assert found["slowest"] < damage.SECONDS
    assert found["peak"] < damage.BYTES
    return found


def test_damaged_files(make_real: Callable[[str], RealFile], tmp_path: Path) -> None:
    found = _damage(tmp_path, _files(tmp_path, make_real), (60, 60, 20), seed=0)
    assert found["ends"]["refused"] > 60
    assert found["ends"]["linked"] > 12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_many_damaged_files(make_real: Callable[[str], RealFile], tmp_path: Path, seed: int) -> None:
    _damage(tmp_path, _files(tmp_path, make_real), (1000, 1000, 300), seed=seed)
