"""Files are written whole or not at all, whatever happens in the middle."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from etdev.errors import WriteError
from etdev.files import TEMPORARY_SUFFIX, atomic_path, atomic_write_bytes, atomic_write_text, locked


def test_writes_and_replaces(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "a.txt"
    atomic_write_text(file, "first\n")
    atomic_write_bytes(file, b"second \xff")
    assert file.read_bytes() == b"second \xff"
    assert list(file.parent.iterdir()) == [file]


def test_permissions_are_the_users_default(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic_write_text(tmp_path / "a", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_writes_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    atomic_write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_and_not_replaced() -> None:
    atomic_write_text(Path("/dev/null"), "gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.fixture(params=["disk", "shared memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder for ordinary files. The one in shared memory is below ``/dev``."""
    if request.param == "disk":
        yield tmp_path
        return
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("needs a /dev/shm that can be written")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="etdev-test-") as name:
        yield Path(name)


def test_a_file_is_replaced_wherever_it_is(folder: Path) -> None:
    """A reader of the old file keeps the old bytes, and the new file has no tail of the old one."""
    file = folder / "a.bin"
    atomic_write_bytes(file, b"old and longer")
    with file.open("rb") as reader:
        with atomic_path(file) as temporary:
            temporary.write_bytes(b"new")
            assert file.read_bytes() == b"old and longer"
        assert reader.read() == b"old and longer"
    assert file.read_bytes() == b"new"
    assert list(folder.iterdir()) == [file]


def test_a_pipe_takes_the_bytes_as_they_come(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        atomic_write_bytes(tmp_path / "pipe", b"sent")
        assert os.read(reader, 100) == b"sent"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_socket_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        with pytest.raises(WriteError, match="this is a socket"):
            atomic_write_bytes(place, b"new")
    assert stat.S_ISSOCK(place.stat().st_mode)


def test_an_open_descriptor_of_a_file_is_refused(tmp_path: Path) -> None:
    """Its owner goes on writing at a position of its own: either of the two would lose bytes."""
    file = tmp_path / "log"
    file.write_text("kept\n")
    (tmp_path / "link").symlink_to("/dev/stdout")
    code = (
        "import sys; from pathlib import Path; from etdev.files import atomic_write_text\n"
        "try: atomic_write_text(Path(sys.argv[1]), 'new')\n"
        "except Exception as error: print(error, file=sys.stderr)"
    )
    for name in ("/dev/stdout", f"{tmp_path}/link"):
        with file.open("a") as out:
            command = [sys.executable, "-c", code, name]
            done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=True, timeout=30)
        assert done.stderr.startswith(f"{name}: cannot write the file: this is an open descriptor of the file {file}\n")
    assert file.read_text() == "kept\n"
    piped = subprocess.run([sys.executable, "-c", code, "/dev/stdout"], capture_output=True, check=True, timeout=30)
    assert piped.stdout == b"new"


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_stood_there_survives_an_exception(tmp_path: Path, kind: type[BaseException]) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")

    def stop_in_the_middle() -> None:
        with atomic_path(file) as temporary:
            temporary.write_text("half of the ne")
            raise kind

    with pytest.raises(kind):
        stop_in_the_middle()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_about_another_file_is_not_ours(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.txt"):
        (tmp_path / "input").read_bytes()
    assert list(tmp_path.iterdir()) == []


_LIMITED = """
import resource, sys
from pathlib import Path
from etdev.errors import WriteError
from etdev.files import atomic_write_bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    atomic_write_bytes(Path(sys.argv[1]), bytes(100_000))
except WriteError as error:
    print(error)
"""


def test_no_room_for_a_file_in_the_middle_of_a_write(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"old")
    command = [sys.executable, "-c", _LIMITED, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == (
        f"{file}: cannot write the file: the file exceeds the size limit of this process\n"
        "  help: raise the limit (`ulimit -f`)\n"
    )
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="no space left on the device"):
        atomic_write_bytes(tmp_path / "a.bin", b"new")
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="this is a folder"):
        atomic_write_text(tmp_path, "")
    with pytest.raises(WriteError, match="a part of the path is a file, not a folder"):
        atomic_write_text(tmp_path / "file" / "a", "")
    with pytest.raises(WriteError, match="the name is too long"):
        atomic_write_text(tmp_path / ("x" * 300), "")


_KILLED = """
import os, signal, sys
from pathlib import Path
from etdev.files import atomic_path
with atomic_path(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_the_old_file_and_a_name_that_says_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", _KILLED, str(file)], check=False, timeout=30)
    assert done.returncode == -signal.SIGKILL
    assert file.read_bytes() == b"old"
    (left,) = set(tmp_path.iterdir()) - {file}
    assert left.name.startswith(".a.bin.")
    assert left.name.endswith(TEMPORARY_SUFFIX)


_HELD = """
import sys, time
from pathlib import Path
from etdev.files import atomic_path, temporary_folder
with globals()[sys.argv[2]](Path(sys.argv[1])) as temporary:
    print(temporary, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    for name in ("a.bin", "a.bin.b", "a"):
        subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path / name)], check=False, timeout=30)
    (other,) = tmp_path.glob(".a.bin.b.*")
    (another,) = tmp_path.glob(".a.[0-9]*")
    mine = tmp_path / f".a.bin.notes{TEMPORARY_SUFFIX}"
    mine.touch()

    atomic_write_bytes(tmp_path / "a.bin", b"new")
    assert set(tmp_path.iterdir()) == {tmp_path / "a.bin", other, another, mine}


def test_a_temporary_file_of_a_temporary_file_goes_with_the_next_write(tmp_path: Path) -> None:
    """A killed relink left one."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    token = f"{ended.pid}-0123abcd{TEMPORARY_SUFFIX}"
    (tmp_path / f"..a.bin.{token}.{token}").touch()
    other = tmp_path / f"..b.bin.{token}.{token}"
    hidden = tmp_path / f"..a.bin.{token}"  # Of the file `.a.bin`.
    other.touch()
    hidden.touch()
    atomic_write_bytes(tmp_path / "a.bin", b"new")
    assert set(tmp_path.iterdir()) == {tmp_path / "a.bin", other, hidden}


@pytest.mark.parametrize("kind", ["atomic_path", "temporary_folder"])
def test_what_another_process_still_writes_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    file = tmp_path / "a.bin"
    writer = subprocess.Popen(
        [sys.executable, "-c", _HELD, str(file), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    temporary = Path(writer.stdout.readline().strip())
    atomic_write_bytes(file, b"new")
    assert temporary.exists()

    monkeypatch.setattr("etdev.files.is_alive", lambda process: False)  # As seen from another container.
    atomic_write_bytes(file, b"newer")
    assert temporary.exists()
    writer.kill()
    writer.communicate(timeout=20)

    atomic_write_bytes(file, b"newest")
    assert list(tmp_path.iterdir()) == [file]


def test_long_names_in_any_alphabet(tmp_path: Path) -> None:
    file = tmp_path / ("ü" * 127)
    atomic_write_text(file, "")
    assert list(tmp_path.iterdir()) == [file]


_LOCKING = """
import os, sys, time
from pathlib import Path
from etdev.files import locked
with locked(Path(sys.argv[1]), lambda holder: print("waits for", holder, flush=True)):
    if sys.argv[2] == "fork":
        source, sink = os.pipe()
        if os.fork() == 0:
            os.write(sink, b"-")  # It runs Python's hooks for new processes before this.
            time.sleep(60)
            os._exit(0)
        os.read(source, 1)
    print("has it", flush=True)
    sys.stdin.read()
"""


def _locking(place: Path, how: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _LOCKING, str(place), how]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    first = _locking(place)
    assert _line(first) == "has it"
    others = [_locking(place) for _ in range(2)]
    assert [_line(other) for other in others] == [f"waits for {first.pid}"] * 2
    for process in (first, *others):
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(timeout=20) for process in (first, *others)] == [0, 0, 0]
    assert [_line(other) for other in others] == ["has it"] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["", "fork"])
def test_a_killed_holder_holds_nothing(tmp_path: Path, how: str) -> None:
    """Not even if a process that it has split off lives on."""
    place = tmp_path / "lock"
    first = _locking(place, how)
    try:
        assert _line(first) == "has it"
        first.kill()
        first.wait(timeout=20)
        assert place.exists()
        waited: list[int | None] = []
        with locked(place, waited.append):
            assert waited == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


def test_threads_exclude_each_other_too(tmp_path: Path) -> None:
    place, waiting = tmp_path / "lock", threading.Event()
    has_it = threading.Event()

    def hold() -> None:
        with locked(place, lambda holder: waiting.set()):
            has_it.set()

    with locked(place, lambda holder: None):
        thread = threading.Thread(target=hold)
        thread.start()
        assert waiting.wait(10)
        assert not has_it.is_set()
    thread.join(10)
    assert has_it.is_set()


def test_a_lock_outlives_its_folder(tmp_path: Path) -> None:
    """The holder removes the folder, which is empty then, before the next one looks for the lock again."""
    place = tmp_path / "out" / "lock"
    waiting, removed, has_it = threading.Event(), threading.Event(), threading.Event()
    stat = os.stat

    def hold() -> None:
        with locked(place, lambda holder: waiting.set()):
            has_it.set()

    def look(path: Path, **options: bool) -> os.stat_result:
        """Look whether the lock is still there, as late as can be."""
        if path == place and threading.current_thread() is thread:
            assert removed.wait(10)
        return stat(path, **options)

    thread = threading.Thread(target=hold)
    with pytest.MonkeyPatch.context() as patch:
        with locked(place, lambda holder: None):
            patch.setattr(os, "stat", look)
            thread.start()
            assert waiting.wait(10)
        place.parent.rmdir()
        removed.set()
        thread.join(10)
    assert has_it.is_set()
