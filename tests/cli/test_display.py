"""The display on a terminal lives whatever the process does, and a command ends with its results."""

from __future__ import annotations

import codecs
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from etdev.cli.rendering.drawing import Drawing

_BUSY = """
import ctypes, sys
from etdev.cli.rendering.display import DISPLAY
assert DISPLAY.start("starting")
DISPLAY.tell("started", "cpu", "emit")
DISPLAY.tell("finished", "cpu", "emit", 0.5)
DISPLAY.tell("started", "cpu", "link")
ctypes.PyDLL(None).usleep(2500000)  # With Python's lock held: no other thread of this process runs.
print("a warning", file=sys.stderr)
DISPLAY.tell("finished", "cpu", "link", 2.5)
DISPLAY.tell("ended", "cpu")
DISPLAY.close()
print("the result")
"""


@dataclass
class Shown:
    """Texts that came on a terminal, with their times."""

    pieces: list[tuple[float, str]]
    seconds: float
    code: int

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    def since(self, begin: str) -> list[float]:
        """Times between two pieces, from the one on that has a text."""
        times = [at for at, text in self.pieces]
        first = next(index for index, (_, text) in enumerate(self.pieces) if begin in text)
        return [later - before for before, later in zip(times[first:], times[first + 1 :], strict=False)]


def on_terminal(command: list[str], folder: Path) -> Shown:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    pieces = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # A character may come in two pieces.
    while True:
        try:
            content = os.read(ours, 65536)
        except OSError:  # Linux reports a terminal that is closed everywhere like this.
            break
        if not content:
            break
        pieces.append((time.monotonic() - began, decoder.decode(content)))
    os.close(ours)
    return Shown(pieces, time.monotonic() - began, process.wait(timeout=20))


@pytest.mark.nightly
def test_a_busy_process_shows_what_it_does_and_for_how_long(tmp_path: Path) -> None:
    shown = on_terminal([sys.executable, "-c", _BUSY], tmp_path)
    assert shown.code == 0
    assert max(shown.since("link")) < 1.0, "at least every second"
    for seconds in (0, 1, 2):
        assert f"cpu  emit 0.5 s, link {seconds} s …" in shown.text
    assert "emit 0 s …" not in shown.text.partition("link")[2]
    left = re.sub(r"\r(\x1b\[\d+A)?\x1b\[J", "\n", shown.text).splitlines()
    lines = [line for line in left if line and "…" not in line]
    assert lines == ["a warning", "cpu  emit 0.5 s, link 2.5 s", "the result"]


def test_the_first_line_comes_before_anything_slow(tmp_path: Path) -> None:
    shown = on_terminal([sys.executable, "-m", "etdev", "build"], tmp_path)
    assert "etdev build: starting 0 s …" in shown.pieces[0][1]
    assert shown.text.rstrip().splitlines()[-1].startswith("help: "), "there is no config"
    assert shown.code == 2


@pytest.mark.parametrize("arguments", [["build", "-q"], ["build", "--help"], ["validate"]], ids=" ".join)
@pytest.mark.sampled(1)
def test_other_commands_show_nothing(arguments: list[str], tmp_path: Path) -> None:
    assert "starting" not in on_terminal([sys.executable, "-m", "etdev", *arguments], tmp_path).text


@pytest.mark.nightly
def test_the_display_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = "import os, signal; from etdev.cli.rendering.display import DISPLAY; DISPLAY.start('x')\n"
    code += "if os.fork() == 0:\n    import time; time.sleep(3); os._exit(0)\n"  # It has the pipe open, too.
    code += "import time; time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"
    shown = on_terminal([sys.executable, "-c", code], tmp_path)
    assert shown.code == -signal.SIGKILL
    assert shown.pieces[-1][0] < 2.5
    assert shown.pieces[-1][1].endswith("\r\x1b[J")


_SPLIT = """
import os, time
from etdev.cli.rendering.display import DISPLAY
DISPLAY.start("working")
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(4)
    os._exit(0)
time.sleep(0.3)
began = time.monotonic()
DISPLAY.close()
print("closed", time.monotonic() - began < 1)
"""


def test_the_display_is_taken_away_although_another_process_has_its_pipe(tmp_path: Path) -> None:
    """It was killed after 2 s, and its last line stayed."""
    shown = on_terminal([sys.executable, "-c", _SPLIT], tmp_path)
    assert shown.text.endswith("\r\x1b[Jclosed True\r\n")


_LONG = """
import sys, time
from etdev.cli.rendering.display import DISPLAY
DISPLAY.start("working")
for target in ("one", "two", "three"):
    DISPLAY.tell("started", target, "emit")
time.sleep(0.3)
print("a long " + "\N{SNOWMAN}" * 5000 + " warning", file=sys.stderr)
time.sleep(0.3)
DISPLAY.close()
"""


def test_a_long_line_above_several_targets_is_kept(tmp_path: Path) -> None:
    """It was written past the display, which then drew over its end."""
    shown = on_terminal([sys.executable, "-c", _LONG], tmp_path)
    assert "\x1b[Ja long " + "\N{SNOWMAN}" * 5000 + " warning\r\r\n" in shown.text


_INTERRUPTED = """
import os, signal, time
from etdev.cli.rendering.display import DISPLAY
from etdev.cli.interrupts import _ECHO, INTERRUPTS
DISPLAY.start("working")
with INTERRUPTS:
    time.sleep(0.3)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    except KeyboardInterrupt:
        time.sleep(_ECHO + 0.1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
"""


def test_the_display_is_gone_when_a_second_ctrl_c_ends_the_process(tmp_path: Path) -> None:
    """It went after the process, and took the prompt of the shell along."""
    shown = on_terminal([sys.executable, "-c", _INTERRUPTED], tmp_path)
    assert shown.code == 130
    assert shown.text.endswith("\r\x1b[J\x1b[?25hinterrupted\r\n")


_LEAVING = """
import atexit, sys, threading, time
from etdev.cli.endings import leave_at_once

class Slow:
    def __del__(self):
        time.sleep(60)

sys.modules["slow"] = Slow()
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("result")
leave_at_once(3)
"""


def test_a_command_that_has_imported_much_leaves_at_once(tmp_path: Path) -> None:
    """Yet what was begun is finished: threads, functions at the exit, and what is still in a buffer."""
    done = subprocess.run([sys.executable, "-c", _LEAVING], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout.splitlines()) == (3, ["result", "thread", "at exit"])


def test_lines_fit_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """Also where its size is not known: a line that wraps could not be drawn over."""
    drawing = Drawing("starting")
    for number in range(40):
        drawing.take("started", 0.0, f"target{number}", "x" * 200)
    drawing.draw()
    lines = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", capfd.readouterr().err).strip("\r\n").split("\r\n")
    assert len(lines) == 23
    assert {len(line) for line in lines} == {79}


_CALLED = """
import time
from etdev.cli.rendering.display import DISPLAY
from etdev.cli.rendering.build_progress import shown_calls
DISPLAY.start("etdev run: starting")
with shown_calls(2000) as advance:
    for _ in range(2000):
        time.sleep(0.0005)
        advance()
DISPLAY.close()
print("the result")
"""


def test_calls_of_a_run_are_counted(tmp_path: Path) -> None:
    shown = on_terminal([sys.executable, "-c", _CALLED], tmp_path)
    counts = re.findall(r"run  calls: ([\d,]+) of 2,000 calls, [\d.,]+ a second", shown.text)
    assert 3 <= len(counts) <= 100, "often enough to see, seldom enough to read"
    assert shown.text.endswith("\r\x1b[Jthe result\r\n")
