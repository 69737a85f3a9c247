"""Pages of the docs as tests run them: their files, their commands, and what the commands print."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from etdev.cli import app

_FILE = re.compile(r"^`(?P<name>[\w./-]+)`:\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```(?P<language>[\w-]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = ("cmake", "app/app")
"""Programs that run as a line of a shell."""
_VARYING = [
    (re.compile(r"\d+(?:\.\d+)? (?:ms|µs|s)\b"), "TIME"),
    (re.compile(r"[0-9a-f]{16}\b"), "DIGEST"),
    (re.compile(r"\d[\d,]*(?= bytes of heap for \w+, as measured)"), "HEAP"),
    (re.compile(r"\b\d(?:\.\d+)?e-\d\d\b|SNR \d+(?:\.\d+)? dB|-?\d\.\d{3,}(?:e-?\d+)?"), "FIGURE"),
]
"""Figures that depend on the processor, the load or the time."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    """Of its first fence, counted from 1."""
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page."""

    line: str
    shown: str | None
    """The lines below the command in its block; ``None`` if it is an indented line without output."""


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page.name, text.count("\n", 0, match.start()) + 1, match["language"], match["text"])
        for match in _FENCE.finditer(text)
    ]


def files(text: str) -> dict[str, str]:
    """The files of a page: a name in backticks with a colon, and a block."""
    return {match["name"]: match["text"] for match in _FILE.finditer(text)}


def commands(text: str) -> list[Command]:
    """The commands of a page in their order: lines of sessions with ``$``, and indented lines."""
    found: list[tuple[int, Command]] = []
    for match in _FENCE.finditer(text):
        if match["language"] == "" and match["text"].startswith("$ "):
            for part in re.split(r"^\$ ", match["text"], flags=re.MULTILINE)[1:]:
                line, _, shown = part.partition("\n")
                found.append((match.start(), Command(line, shown)))
    outside = _FENCE.sub(lambda fence: re.sub(r"[^\n]", "`", fence[0]), text)
    for block in re.finditer(r"(?<=\n\n)(?: {4}\S.*\n)+", outside):  # Without a blank line: an item of a list.
        found += [(block.start(), Command(line.strip(), None)) for line in block[0].splitlines()]
    return [command for _, command in sorted(found, key=lambda item: item[0])]


def run(line: str, folder: Path) -> tuple[int, str]:
    """Run a command of a page in a folder: its exit code, and what it printed without its progress.

    ``etdev`` runs in this process, so that torch is imported once. Comments end a line.
    """
    program, *arguments = shlex.split(line, comments=True)
    if program == "etdev":
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.run(arguments)
        printed, said = (_content(stream) for stream in (out, err))
        return int(code), printed + (said if code or not printed else "")
    if program == "python":
        return 0, script(folder / arguments[0], arguments[1:])
    if program in SHELL:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=600,
        )
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")
    raise AssertionError(f"a page has a command that its test does not know: {line}")


def _content(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return bytes(stream.buffer.getvalue()).decode("utf-8")  # type: ignore[attr-defined]


def script(path: Path, arguments: list[str]) -> str:
    """Run a script of a page in this process, without its modules afterwards; what it printed."""
    out, before = io.StringIO(), set(sys.modules)
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(path.parent), contextlib.redirect_stdout(out):
        patch.setattr(sys, "argv", [path.name, *arguments])
        patch.syspath_prepend(str(path.parent))
        patch.setattr(sys, "dont_write_bytecode", True)
        runpy.run_path(path.name, run_name="__main__")
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(path.parent)):
            del sys.modules[name]
    return out.getvalue()


def assert_shown(shown: str, printed: str) -> None:
    """Assert that a page shows what a command prints; a line ``...`` stands for any lines."""
    expected, found = (plain(text).splitlines() for text in (shown, printed))
    at = 0
    for number, line in enumerate(expected):
        if line.strip() == "...":
            continue
        elided = number > 0 and expected[number - 1].strip() == "..."
        places = range(at, len(found)) if elided else range(at, at + 1)
        place = next((place for place in places if place < len(found) and found[place] == line), None)
        assert place is not None, f"the page shows\n{line}\nand the command prints\n" + "\n".join(found[at:])
        at = place + 1
    if expected[-1:] != ["..."]:
        assert found[at:] == [], "the command prints more"


def plain(text: str) -> str:
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
