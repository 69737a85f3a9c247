"""Questions to the user at the terminal. They are printed on stderr, because only results are printed on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

import typer

from etdev.cli.rendering.output import note, paint, print_error
from etdev.cli.rendering.text import columns
from etdev.errors import UsageError


def can_ask() -> bool:
    """Return True if a user can answer questions; False in a CI job, even if the job has a terminal."""
    streams = (sys.stdin, sys.stderr)  # A closed stream is None.
    return all(stream is not None and stream.isatty() for stream in streams) and not os.environ.get("CI")


def ask(question: str, default: str, check: Callable[[str], str] = str) -> str:
    """Ask until ``check`` accepts the answer, and return the result of ``check``; an empty answer means ``default``.

    ``check`` raises :class:`~etdev.errors.UsageError` for an invalid answer. At the end of the input, ``typer.Abort``
    is raised.
    """
    while True:
        try:
            return check(_answer(f"{question} [{default}]") or default)
        except UsageError as error:
            print_error(error.message, hint=error.hint)


def choose(question: str, options: Mapping[str, str], default: str) -> str:
    """Ask for one of the options, by name or by number; ``options`` maps each name to a description."""
    names = list(options)
    for line in columns([(f"{number}", name, options[name]) for number, name in enumerate(names, 1)]):
        note(f"  {line}")

    def check(answer: str) -> str:
        if answer.isdecimal() and 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]
        if answer in options:
            return answer
        raise UsageError(
            f"{answer!r} is not one of the options", hint=f"enter a number from 1 to {len(names)}, or a name"
        )

    return ask(question, default, check)


def confirm(question: str, *, default: bool) -> bool:
    """Ask for yes or no; return True if the answer is yes."""

    def check(answer: str) -> str:
        if answer.lower() in ("y", "yes", "n", "no"):
            return answer.lower()
        raise UsageError(f"{answer!r} is neither yes nor no")

    return ask(f"{question} y/n", "y" if default else "n", check).startswith("y")


def _answer(question: str) -> str:
    """Ask the question on stderr, and return the line that the user types, without surrounding space."""
    print(f"{paint('?', 'cyan')} {question}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        note("")
        raise typer.Abort
    return line.strip()
