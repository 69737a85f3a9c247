"""Stage *write*: a file that stands next to its place until it is accepted or rejected."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.errors import WriteError
from etdev.pipeline.stages.staging import StagedFile
from etdev.pipeline.stages.write import write_program
from etdev.program import Blob, Program, read
from etdev.program import model as m
from support.mounts import small_disk

DATA = b"program" * 1000
PROGRAM = Program(
    execution_plan=(m.ExecutionPlan("forward", (), (), (), (m.Chain(()),), (), (), (0,)),),
    segments=(m.Segment(0, Blob(DATA)),),
    constant_segment=m.SubsegmentOffsets(0, (0,)),
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_the_file_is_what_was_hashed(tmp_path: Path) -> None:
    with StagedFile(tmp_path / "a" / "x.pte") as staged:
        written = write_program(PROGRAM, staged)
        content = written.path.read_bytes()
        assert (written.size, written.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert read(written.path) == PROGRAM
        assert not staged.target.exists()


@pytest.mark.parametrize(
    ("before", "verdict", "after"),
    [
        pytest.param([], StagedFile.accept, ["x.pte"], id="accepted"),
        pytest.param([], StagedFile.reject, ["x.pte.rejected"], id="rejected"),
        pytest.param(["x.pte"], StagedFile.accept, ["x.pte"], id="accepted over an old one"),
        pytest.param(["x.pte"], StagedFile.reject, ["x.pte.rejected"], id="rejected over an old one"),
        pytest.param(["x.pte.rejected"], StagedFile.accept, ["x.pte"], id="accepted after a rejected one"),
        pytest.param(["x.pte.rejected"], StagedFile.reject, ["x.pte.rejected"], id="rejected again"),
    ],
)
def test_one_file_is_left(
    tmp_path: Path, before: list[str], verdict: Callable[[StagedFile], Path], after: list[str]
) -> None:
    """Never both: nobody takes the artifact of an earlier build for the one that was just rejected."""
    for name in before:
        (tmp_path / name).write_bytes(b"old")
    with StagedFile(tmp_path / "x.pte") as staged:
        write_program(PROGRAM, staged)
        place = verdict(staged)

    assert names(tmp_path) == after
    assert read(place) == PROGRAM


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("when", ["while it is written", "afterwards"])
def test_without_a_verdict_the_old_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], when: str
) -> None:
    (tmp_path / "x.pte").write_bytes(b"old")

    def interrupt() -> None:
        raise error

    if when == "while it is written":
        monkeypatch.setattr("etdev.program.segments._write_segments", lambda *_: interrupt())

    def write_and_fail() -> None:
        with StagedFile(tmp_path / "x.pte") as staged:
            write_program(PROGRAM, staged)
            interrupt()

    with pytest.raises(error):
        write_and_fail()
    assert names(tmp_path) == ["x.pte"]
    assert (tmp_path / "x.pte").read_bytes() == b"old"


def write(target: Path) -> None:
    with StagedFile(target) as staged:
        write_program(PROGRAM, staged)
        staged.accept()


def test_a_limit_on_file_sizes(tmp_path: Path) -> None:
    (tmp_path / "x.pte").write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(WriteError) as caught:
            write(tmp_path / "x.pte")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert caught.value.where == str(tmp_path / "x.pte")
    assert caught.value.message == "cannot write the file: the file exceeds the size limit of this process"
    assert names(tmp_path) == ["x.pte"]
    assert (tmp_path / "x.pte").read_bytes() == b"old"


def test_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=8k") as disk:
        (disk / "x.pte").write_bytes(b"old")
        with pytest.raises(WriteError, match="no space left on the device") as caught:
            write(disk / "x.pte")

        assert caught.value.where == str(disk / "x.pte")
        assert caught.value.hint == "free some space, or write to another place"
        assert names(disk) == ["x.pte"]
        assert (disk / "x.pte").read_bytes() == b"old"


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", "ro") as disk,
        pytest.raises(WriteError, match="the file system is read-only") as caught,
    ):
        write(disk / "cpu" / "x.pte")
    assert caught.value.where == str(disk / "cpu" / "x.pte")


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "build").write_bytes(b"in the way")
    with pytest.raises(WriteError, match="a part of the path is a file, not a folder"):
        write(tmp_path / "build" / "cpu" / "x.pte")


def test_a_folder_where_the_file_should_be(tmp_path: Path) -> None:
    (tmp_path / "x.pte").mkdir()
    with pytest.raises(WriteError, match="this is a folder"):
        write(tmp_path / "x.pte")
    assert names(tmp_path) == ["x.pte"]


def test_what_a_killed_build_left_goes_with_the_next_one(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            staged = StagedFile(tmp_path / "x.pte").__enter__()
            write_program(PROGRAM, staged)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(names(tmp_path)) == 1

    write(tmp_path / "x.pte")
    assert names(tmp_path) == ["x.pte"]
