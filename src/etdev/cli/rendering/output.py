"""Output of commands. Results go to stdout, messages go to stderr.

If a machine-readable format goes to stdout, all text goes to stderr. Programs can then parse stdout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from etdev.cli.rendering.display import DISPLAY
from etdev.cli.rendering.text import escaped
from etdev.config.limits import PRODUCTS
from etdev.errors import UsageError
from etdev.files import atomic_write_text, real_path

if TYPE_CHECKING:
    pass

TEXT = "text"
"""The format for people; all other formats are machine-readable."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output that the user requested with ``--output``."""

    format: str
    path: Path | None
    """File to write; None for standard output."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """All outputs that the user requested; at most one machine-readable format goes to stdout."""

    items: tuple[Output, ...]

    @property
    def machine_on_stdout(self) -> bool:
        """Return True if a machine-readable format goes to stdout; text then goes to stderr."""
        return any(item.path is None and item.format != TEXT for item in self.items)

    def refuse(self, *files: str | Path | None) -> None:
        """Raise :class:`~etdev.errors.UsageError` if an output would replace one of the command's ``files``.

        Also raise it if an output has the suffix of a file that builds write.
        """
        own = {real_path(file) for file in files if file is not None}
        for item in self.items:
            if item.path is not None and real_path(item.path) in own:
                raise UsageError(
                    f"{str(item.path)!r} is a file that the command itself reads or writes",
                    where="--output",
                    hint=f"write the report to another path: `--output {item.format}=FILE`",
                )
            if item.path is not None and item.path.suffix in PRODUCTS:
                raise UsageError(
                    f"a report cannot be written to {str(item.path)!r}: the suffix {item.path.suffix} is for "
                    "built files",
                    where="--output",
                    hint=f"write the report to another path: `--output {item.format}=FILE`",
                )

    def refuse_format(self, name: str, why: str) -> None:
        """Raise :class:`~etdev.errors.UsageError` with the message ``why`` if the format ``name`` was requested."""
        if any(item.format == name for item in self.items):
            raise UsageError(why, where="--output", hint=f"remove `--output {name}`")

    def write(self, renderers: Mapping[str, Callable[[], str]]) -> None:
        """Render each requested format and write it; each file is written completely or not at all."""
        DISPLAY.close()
        for item in self.items:
            content = renderers[item.format]()
            content = content if content.endswith("\n") or not content else content + "\n"
            if item.path is not None:
                atomic_write_text(item.path, content)
            else:
                stream = sys.stderr if item.format == TEXT and self.machine_on_stdout else sys.stdout
                stream.write(content)
                stream.flush()


def parse_outputs(values: Iterable[str] | None, *, allowed: Sequence[str]) -> Outputs:
    """Return the outputs that the ``--output`` options of a command line request.

    Each option is ``FORMAT`` or ``FORMAT=PATH``; the path ``-`` is standard output. ``allowed`` has the command's
    formats. If ``allowed`` includes ``text`` and no other format goes to standard output, text is printed there.
    """
    items = tuple(_parse_output(value, allowed) for value in values or ())
    on_stdout = [item.format for item in items if item.path is None and item.format != TEXT]
    if len(on_stdout) > 1:
        raise UsageError(
            f"{' and '.join(on_stdout)} cannot both go to standard output",
            where="--output",
            hint=f"write one of them to a file: `--output {on_stdout[1]}=FILE`",
        )
    paths = [item.path for item in items if item.path is not None]
    if len(set(paths)) < len(paths):
        raise UsageError(
            "two formats are written to the same file", where="--output", hint="use another file for one of them"
        )
    if TEXT in allowed and not any(item.path is None for item in items):
        items = (*items, Output(TEXT, None))
    return Outputs(items)


def _parse_output(value: str, allowed: Sequence[str]) -> Output:
    name, separator, path = value.partition("=")
    if name not in allowed:
        raise UsageError(f"unknown format {name!r}", where="--output", hint=f"use one of: {', '.join(allowed)}")
    if separator and not path:
        raise UsageError(
            f"{value!r} has no file name after `=`", where="--output", hint=f"write `--output {name}=FILE`"
        )
    return Output(name, Path(path) if path and path != "-" else None)


def note(message: str, *, quiet: bool = False) -> None:
    """Print a line for people on stderr, unless ``quiet``."""
    if not quiet:
        print(message, file=sys.stderr, flush=True)


def print_error(message: str, *, where: str | None = None, hint: str | None = None, label: str = "error") -> None:
    """Print ``error: WHERE: message`` and ``help: …`` on stderr.

    Untrusted characters in the texts are escaped.
    """
    head = f"{paint(f'{label}:', 'red')} " if label else ""
    place = f"{where}: " if where else ""
    note(f"{head}{escaped(place + message)}")
    if hint:
        note(f"{paint('help:', 'cyan')} {escaped(hint)}")


def paint(text: str, colour: str | None = None, *, stream: TextIO | None = None) -> str:
    """Return the text in bold and, if ``colour`` is set, in that color.

    Without ``colour``, the text keeps the terminal's own foreground, which is readable on every background. If
    ``stream`` (stderr by default) does not show colors, the text is unchanged.
    """
    return typer.style(text, fg=colour, bold=True) if colour_wanted(stream or sys.stderr) else text


def colour_wanted(stream: TextIO) -> bool:
    """Return True if the stream is a terminal that shows colors, and ``NO_COLOR`` is not set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
