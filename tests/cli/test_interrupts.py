"""Ctrl-C, SIGTERM, a closed terminal: exit code 130, one word, and nothing left half written."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from etdev.cli import app
from etdev.cli.interrupts import _ECHO, INTERRUPTS, Interruptible
from etdev.cli.lazy import Entry
from etdev.pipeline.project.progress import Silent

pytestmark = pytest.mark.integration

_WAITING = """
import sys, time
from pathlib import Path
from etdev.cli import app
from etdev.cli.lazy import Entry
from etdev.files import atomic_path

def wait() -> int:
    with atomic_path(Path("out.bin")) as temporary:
        temporary.write_bytes(b"half")
        print("ready", flush=True)
        while True:
            time.sleep(0.01)  # A signal that comes just before a long sleep would be seen only after it.

def slow() -> int:
    try:
        return wait()
    finally:
        print("leaving", file=sys.stderr, flush=True)
        end = time.monotonic() + float(sys.argv[2])
        while time.monotonic() < end:
            time.sleep(0.01)
        Path("left").touch()

def busy() -> int:
    import hashlib, threading
    # Said once the main thread is in the call: a signal before it is met at once.
    threading.Timer(0.5, print, ("ready",), {"flush": True}).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # Minutes, without the interpreter's lock.
    return 0

def split() -> int:
    # Leave a process of user code behind; another one gets a signal.
    import os, signal
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    killed = os.fork()
    if killed == 0:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os._exit(0)
    os.waitpid(killed, 0)
    return slow() if len(sys.argv) > 2 else 0

sys.modules["waiting"] = sys.modules["__main__"]
app.Commands.entries["wait"] = Entry("Wait.", "waiting:wait")
app.Commands.entries["slow"] = Entry("Wait, and take as many seconds to leave.", "waiting:slow")
app.Commands.entries["split"] = Entry("Fork.", "waiting:split")
app.Commands.entries["busy"] = Entry("Compute.", "waiting:busy")
sys.exit(app.run([sys.argv[1]]))
"""


@pytest.fixture(autouse=True, scope="module")
def _signals_as_in_a_terminal() -> Iterator[None]:
    """Children inherit what is ignored: under ``nohup``, or in the background of a script, that is what is tested."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _waiting(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _WAITING, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_signals_leave_nothing_half_written(tmp_path: Path, number: signal.Signals) -> None:
    process = _waiting(tmp_path, "wait")
    process.send_signal(number)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert err == "interrupted\n"
    assert list(tmp_path.iterdir()) == []


def _leave(process: subprocess.Popen[str], *more: signal.Signals, first: signal.Signals = signal.SIGINT) -> None:
    """Interrupt it, and while it cleans up send more."""
    assert process.stderr is not None
    process.send_signal(first)
    assert process.stderr.readline() == "leaving\n"
    for number in more:
        process.send_signal(number)
        time.sleep(0.05)


def test_other_signals_do_not_stop_the_clean_up(tmp_path: Path) -> None:
    """Raised again, they would. A Ctrl-C that comes twice, from the terminal and from a wrapper, is one."""
    process = _waiting(tmp_path, "slow", "0.5")
    _leave(process, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert err == "interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["left"]


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_second_ctrl_c_ends_at_once(tmp_path: Path, first: signal.Signals) -> None:
    """It took three, and 3 s."""
    process = _waiting(tmp_path, "slow", "600")
    _leave(process, first=first)
    time.sleep(_ECHO + 0.1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=5)
    assert (process.returncode, err) == (130, "interrupted\n")


def test_a_second_ctrl_c_ends_a_call_of_a_library(tmp_path: Path) -> None:
    """In such a call the main thread meets no signal."""
    process = _waiting(tmp_path, "busy")
    process.send_signal(signal.SIGINT)
    time.sleep(_ECHO + 0.1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=5)
    assert (process.returncode, err) == (130, "interrupted\n")


def test_a_process_that_outlives_the_command_does_not_hold_it_up(tmp_path: Path) -> None:
    """Such as a worker of a data loader. The command waited until that process ended."""
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", _WAITING, "split"], cwd=tmp_path, timeout=30).returncode == 0
    assert time.monotonic() - began < 10


def test_a_signal_of_another_process_is_not_the_first_one(tmp_path: Path) -> None:
    """A pool that ends its workers sends them SIGTERM. The next Ctrl-C ended the command without its clean-up."""
    process = _waiting(tmp_path, "split", "0.1")
    time.sleep(_ECHO + 0.1)
    _leave(process)
    assert process.wait(timeout=20) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["left"]


def test_nohup_is_respected(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = _waiting(tmp_path, "wait")
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_a_terminal_that_is_closed(tmp_path: Path) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, "-c", _WAITING, "wait"])
    seen = b""
    while not seen.endswith(b"\n"):  # It may come in pieces.
        seen += os.read(terminal, 100)
    assert seen == b"ready\r\n"
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    assert list(tmp_path.iterdir()) == []


def _lose_the_interrupt() -> int:
    """What an import does that is interrupted in the middle."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise KeyError("half.imported") from None
    return 0


def _swallow_the_interrupt() -> int:
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        Interruptible(Silent()).started("cpu", "export")
    return 0


@pytest.mark.parametrize("command", [_lose_the_interrupt, _swallow_the_interrupt])
def test_an_interrupt_that_a_library_loses_still_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: object
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setitem(app.Commands.entries, "lose", Entry("Lose.", f"{__name__}:{getattr(command, '__name__', '')}"))
    before = signal.getsignal(signal.SIGINT)

    assert app.run(["lose"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is before

    assert app.run(["--version"]) == 0
    assert not INTERRUPTS.seen


@pytest.mark.parametrize(
    ("last_stage", "numbers"),
    [
        pytest.param("load", [signal.SIGINT], id="at once"),
        pytest.param(
            "write",
            [signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT],
            id="impatient",
            marks=pytest.mark.nightly,
        ),
        pytest.param("write", [signal.SIGHUP], id="closed terminal", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupted_build_leaves_nothing(
    tmp_path: Path, last_stage: str, numbers: Sequence[signal.Signals]
) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    project = tmp_path / "project"
    assert app.run(["init", "-q", str(project)]) == 0
    before = {path.name for path in project.iterdir()}
    process = subprocess.Popen(
        [sys.executable, "-m", "etdev", "build"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith(f"cpu: {last_stage} "):
        assert process.poll() is None
    for number in numbers:
        os.killpg(process.pid, number)  # As a terminal does: to the build and its children.
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert out == ""
    assert err.endswith("interrupted\n")
    left = {path.name for path in project.rglob("*") if path.is_file()} - before
    assert left in (set(), {"project.object.pte", "project.object.json"})  # Complete, for the next build.
