"""Every way in which a command can end: its exit code, what is printed, and where."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.cli import app, endings
from etdev.cli.lazy import Entry
from etdev.errors import (
    ConfigError,
    EtdevError,
    ExitCode,
    ExportError,
    LoadError,
    MissingRequirementError,
    Problem,
    TargetsError,
    UsageError,
    WriteError,
)

RunEnding = Callable[..., tuple[int, str, str]]


def _raise() -> int:
    assert _raise.error is not None  # type: ignore[attr-defined]
    raise _raise.error  # type: ignore[attr-defined]


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> RunEnding:
    """Run a command that ends with the given exception: exit code, stdout, stderr."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(app.Commands.entries, "fail", Entry("Fail.", f"{__name__}:_raise"))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])

    def run(error: BaseException) -> tuple[int, str, str]:
        monkeypatch.setattr(_raise, "error", error, raising=False)
        code = app.run(["fail"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


_TWO_PROBLEMS = ConfigError(
    (
        Problem("unknown key `a`", "a", "etdev.toml", 3, 1, hint="did you mean `b`?"),
        Problem("missing key `c`", "c", "etdev.toml", 1, 1),
    )
)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        pytest.param(
            ExportError("refused", where="etdev.toml:4:1", hint="look"),
            4,
            "error: etdev.toml:4:1: refused\nhelp: look\n",
            id="expected error",
        ),
        pytest.param(MissingRequirementError("no torch"), 3, "error: no torch\n", id="environment"),
        pytest.param(UsageError("no", where="--output"), 2, "error: --output: no\n", id="usage"),
        pytest.param(
            _TWO_PROBLEMS,
            2,
            "error: etdev.toml:3:1: unknown key `a`\nhelp: did you mean `b`?\nerror: etdev.toml:1:1: missing key `c`\n",
            id="every problem of a config",
        ),
        pytest.param(
            TargetsError(
                {
                    "a": ExportError("refused", where="m.py:4", hint="look"),
                    "b": _TWO_PROBLEMS,
                    "c": ExportError("refused", where="m.py:4", hint="look"),
                },
                ExitCode.BUILD_FAILED,
                hint="build/results.json says the rest",
            ),
            4,
            "error: m.py:4: targets 'a', 'c': refused\nhelp: look\n"
            "error: etdev.toml:3:1: target 'b': unknown key `a`\nhelp: did you mean `b`?\n"
            "error: etdev.toml:1:1: target 'b': missing key `c`\n"
            "build/results.json says the rest\n",
            id="every error of a build",
        ),
        pytest.param(WriteError("disk full", where="x.pte"), 4, "error: x.pte: disk full\n", id="write error"),
        pytest.param(KeyboardInterrupt(), 130, "interrupted\n", id="Ctrl-C"),
        pytest.param(BrokenPipeError(errno.EPIPE, "Broken pipe"), 130, "", id="reader went away"),
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device", "build/x.bin"),
            4,
            "error: build/x.bin: cannot write: no space left on the device\n"
            "help: free some space, or write to another place\n",
            id="disk full",
        ),
        pytest.param(
            PermissionError(errno.EACCES, "Permission denied", "build/x"),
            4,
            "error: build/x: cannot read or write: permission denied\n"
            "help: check who owns the folder, or write to another place\n",
            id="a temporary folder of a library",
        ),
    ],
)
def test_ending(end: RunEnding, error: BaseException, code: int, text: str) -> None:
    assert end(error) == (code, "", text)


def test_a_bug_asks_for_a_report_and_keeps_the_traceback_in_a_file(end: RunEnding, tmp_path: Path) -> None:
    code, out, err = end(ZeroDivisionError("division by zero"))

    assert (code, out) == (70, "")
    assert err.startswith("etdev: internal error: ZeroDivisionError: division by zero\n")
    assert "Please report it" in err
    assert "Traceback" not in err
    (file,) = tmp_path.glob("etdev-traceback-*.txt")
    assert str(file) in err
    assert "in _raise" in file.read_text()


def test_debugging_shows_the_traceback(end: RunEnding, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ETDEV_DEBUG", "1")
    _, _, err = end(ZeroDivisionError("division by zero"))

    assert "Traceback (most recent call last)" in err
    assert "the traceback above" in err
    assert not list(tmp_path.iterdir())


def test_an_expected_error_has_the_trace_of_its_cause_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frames of etdev came before each message of a build with -v, which is the usual way to see figures."""
    monkeypatch.delenv("ETDEV_DEBUG", raising=False)

    def shown(error: EtdevError) -> str:
        endings.report(error, debug=True)
        return capsys.readouterr().err

    caused = LoadError("the model failed")
    caused.__cause__ = ValueError("no weights")
    assert shown(LoadError("no such file")) == "error: no such file\n"
    assert shown(caused) == "ValueError: no weights\nerror: the model failed\n"
    monkeypatch.setenv("ETDEV_DEBUG", "1")
    assert "LoadError" in shown(LoadError("no such file"))


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["bild"], "error: No such command 'bild'. Did you mean 'build'?", "help: run `etdev --help`"),
        (["config"], "error: Missing command.", "help: run `etdev config --help`"),
        (["init", "--tmplate", "x"], "error: No such option", "help: run `etdev init --help`"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str, hint: str) -> None:
    assert app.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert hint in captured.err


def test_without_a_command_help_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Commands:" in captured.err


def _etdev(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "etdev", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, **settings)  # type: ignore[call-overload, no-any-return]


def test_a_reader_that_went_away_is_no_complaint() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = _etdev("--help", stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout() -> None:
    with Path("/dev/full").open("w") as full:
        done = _etdev("--help", stdout=full)
    assert done.returncode == 4
    assert done.stderr.startswith("error: standard output: cannot write: no space left on the device\n")


def test_an_error_of_the_disk_is_not_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    """A failing disk was reported as a bug of etdev, with exit code 70."""
    assert endings.report(OSError(errno.EIO, "Input/output error"), debug=False) == 4
    assert capsys.readouterr().err == (
        "error: standard output: cannot read or write: the disk or its connection reports an error\n"
        "help: check the disk, or use another one\n"
    )


_LOUD = """
import atexit, os, sys
from etdev import __main__
from etdev.cli import app, endings
from etdev.cli.lazy import Entry

def answer() -> int:
    atexit.register(lambda: (print("bye"), sys.stdout.flush(), os.write(1, b"goodbye")))
    print("{}")
    return 1

sys.modules["loud"] = sys.modules["__main__"]
app.Commands.entries["answer"] = Entry("Answer.", "loud:answer")
sys.argv[1:] = ["answer"]
__main__.main()
"""


def test_nothing_follows_the_result_on_stdout() -> None:
    """What user code printed while the interpreter exited made `--output json` unreadable."""
    done = subprocess.run([sys.executable, "-c", _LOUD], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "{}\n", "bye\ngoodbye")
