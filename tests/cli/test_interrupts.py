"""Ctrl-C and SIGTERM: exit code 130, one word, and nothing left half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from etdev.cli import app
from etdev.cli.interrupts import INTERRUPTS, Interruptible
from etdev.cli.lazy import Entry
from etdev.pipeline.progress import Silent

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

sys.modules["waiting"] = sys.modules["__main__"]
app.Commands.entries["wait"] = Entry("Wait.", "waiting:wait")
sys.exit(app.run(["wait"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_signals_leave_nothing_half_written(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _WAITING], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert err == "interrupted\n"
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


def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
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
    assert process.stderr.readline().startswith("cpu: load ")
    os.killpg(process.pid, signal.SIGINT)  # As a terminal does: to the build and its children.
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert out == ""
    assert err.endswith("interrupted\n")
    assert {path.name for path in project.rglob("*") if path.is_file()} == before
