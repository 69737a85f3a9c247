"""A program and its external data in one file, for the stock runtime: written once, and left nowhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from etdev.errors import ProgramError
from etdev.program import Program, read, write
from etdev.runtime.stock.joined import JoinedFile
from support.files import chain


class Joiner:
    """Return a program of as many instructions as the data files have bytes, and count the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, file: Path, data: Sequence[Path]) -> Program:
        self.calls += 1
        try:
            return chain(sum(len(path.read_bytes()) for path in data))
        except OSError as error:
            raise ProgramError("there is no such file", where=str(error.filename)) from error


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A program and its data; temporary files are in a folder next to them."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("a.pte", "a.ptd"):
        (tmp_path / name).write_bytes(b"x")
    return tmp_path / "a.pte", tmp_path / "a.ptd"


def test_written_once_for_each_content(pair: tuple[Path, Path]) -> None:
    file, data = pair
    joined, join = JoinedFile(), Joiner()
    path = joined.path(file, [data], join)
    assert read(path) == chain(1)
    data.write_bytes(b"x")
    assert (joined.path(file, [data], join), join.calls) == (path, 1)
    data.write_bytes(b"xyz")
    with path.open("rb") as before:
        assert read(joined.path(file, [data], join)) == chain(3)
        assert before.read(), "who has opened the file of before still reads it"
    file.write_bytes(b"y")
    joined.path(file, [data], join)
    assert join.calls == 3
    joined.close()
    assert not path.exists()
    assert read(joined.path(file, [data], join)) == chain(3)
    joined.close()
    assert not list(Path(tempfile.gettempdir()).iterdir())


def test_a_change_of_any_data_file_counts(pair: tuple[Path, Path]) -> None:
    file, data = pair
    other = data.with_name("b.ptd")
    other.write_bytes(b"xy")
    joined, join = JoinedFile(), Joiner()
    assert read(joined.path(file, [data, other], join)) == chain(3)
    other.write_bytes(b"xyz")
    assert read(joined.path(file, [data, other], join)) == chain(4)
    joined.close()


def test_another_process_reads_it(pair: tuple[Path, Path]) -> None:
    joined = JoinedFile()
    path = joined.path(pair[0], pair[1:], Joiner())
    copied = subprocess.run(["cat", str(path)], capture_output=True, check=True).stdout
    assert copied == path.read_bytes()
    joined.close()


def test_data_that_cannot_be_read_are_the_joiners_to_name(pair: tuple[Path, Path]) -> None:
    file, data = pair
    joined, join = JoinedFile(), Joiner()
    joined.path(file, [data], join)
    data.unlink()
    with pytest.raises(ProgramError, match="there is no such file"):
        joined.path(file, [data], join)
    joined.close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files without a name have no path here")
def test_a_process_that_is_killed_leaves_nothing(pair: tuple[Path, Path], tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
from etdev.program import read
from etdev.runtime.stock.joined import JoinedFile
file, data = map(Path, {tuple(map(str, pair))!r})
joined = JoinedFile()
print(joined.path(file, [data], lambda *_: read({str(tmp_path / "m.pte")!r})).stat().st_size, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    write(chain(2), tmp_path / "m.pte")
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, "TMPDIR": tempfile.gettempdir()}
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert int(ended.stdout) == (tmp_path / "m.pte").stat().st_size
    assert not list(Path(tempfile.gettempdir()).iterdir())
