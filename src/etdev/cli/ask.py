"""Questions to whoever sits at the terminal, on stderr like all that is not a result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

import typer

from etdev.cli.output import note, paint, print_error
from etdev.cli.text import columns
from etdev.errors import UsageError


def can_ask() -> bool:
    """Whether somebody is there who could answer: nobody is in a CI job, even if it has a terminal."""
    streams = (sys.stdin, sys.stderr)  # Either is None if it was closed before.
    return all(stream is not None and stream.isatty() for stream in streams) and not os.environ.get("CI")


def ask(question: str, default: str, check: Callable[[str], str] = str) -> str:
    """An answer that ``check`` takes, as it returns it; nothing but Enter is ``default``.

    ``check`` raises :class:`~etdev.errors.UsageError` for an answer that is none, and the question comes again. Raises
    ``typer.Abort`` at the end of the input.
    """
    while True:
        try:
            return check(_answer(f"{question} [{default}]") or default)
        except UsageError as error:
            print_error(error.message, hint=error.hint)


def choose(question: str, options: Mapping[str, str], default: str) -> str:
    """One of the options, by name or by number; the values say what each is."""
    names = list(options)
    for line in columns([(f"{number}", name, options[name]) for number, name in enumerate(names, 1)]):
        note(f"  {line}")

    def check(answer: str) -> str:
        if answer.isdecimal() and 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]
        if answer in options:
            return answer
        raise UsageError(f"{answer!r} is none of these", hint=f"a number from 1 to {len(names)}, or a name")

    return ask(question, default, check)


def confirm(question: str, *, default: bool) -> bool:
    """Yes or no."""

    def check(answer: str) -> str:
        if answer.lower() in ("y", "yes", "n", "no"):
            return answer.lower()
        raise UsageError(f"{answer!r} is neither yes nor no")

    return ask(f"{question} y/n", "y" if default else "n", check).startswith("y")


def _answer(question: str) -> str:
    """What is typed up to Enter. ``input`` would write the question to stdout."""
    print(f"{paint('?', 'cyan')} {question}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        note("")
        raise typer.Abort
    return line.strip()
