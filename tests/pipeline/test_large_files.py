"""Memory that a relink of a large file takes: the weights stay in the file."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.program import model as m
from etdev.program import write
from etdev.program.mapped import map_file
from linker.programs import Method, program

MIB = 1 << 20
_GROWTH = """
import re, sys
from pathlib import Path
import etdev
from etdev.program import read

def resident():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10

def use(source):
    etdev.relink(source, source + ".linked")
    assert read(source).segments == read(source + ".linked").segments

small, large = sys.argv[1:]
use(small)
before = resident()
use(large)
print(resident() - before)
"""
"""Prints by how much the most resident memory of a process grows: allocated, and of mapped files."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


def make_file(path: Path, size: int) -> Path:
    """Write a program whose only constant takes so many bytes."""
    weights = path.with_suffix(".weights")
    with weights.open("wb") as file:
        file.truncate(size)
    method = Method()
    method.outputs = [method.op(method.input(64), method.constant(size), nbytes=64)]
    constants = m.SubsegmentOffsets(0, (0, 0))
    segments = (m.Segment(0, map_file(weights)),)
    found = program(method).program
    write(replace(found, segments=segments, constant_segment=constants, mutable_data_segments=()), path)
    weights.unlink()
    return path


def growth(folder: Path, size: int) -> int:
    """Return the bytes that a relink of a file of so many bytes takes more than that of a small one."""
    files = [make_file(folder / "small.pte", MIB), make_file(folder / "large.pte", size)]
    done = subprocess.run([sys.executable, "-c", _GROWTH, *files], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.nightly
def test_weights_of_a_file_take_no_memory(tmp_path: Path) -> None:
    assert growth(tmp_path, 256 * MIB) < 16 * MIB


@pytest.mark.slow
def test_three_gigabytes_of_weights_take_no_memory(tmp_path: Path) -> None:
    assert growth(tmp_path, 3 << 30) < 16 * MIB
