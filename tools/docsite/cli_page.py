"""The page ``docs/cli.md``: every command with its arguments and options, from the program itself."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from etdev import errors
from etdev.cli.app import app

_NAME = re.compile(
    r"(?<![\w`-])(--?[a-z][\w-]*|[A-Z]*\.(?:pte|ptd|toml|yaml|npy|npz|json|safetensors|txt|csv)\b|\[tool\.etdev\])"
)
_HEAD = """\
# Commands

<!-- `make docs` writes this page from the commands of src/etdev/cli. -->

This page is for people who look up a command or an option. You will find each command with all that it takes; `--help`
prints the same.

Results go to standard output, progress and errors to standard error. [ci.md](ci.md) has the
[formats of `--output`](ci.md#output-formats) and the [exit codes](ci.md#exit-codes).
An option with a value may be given once, unless its text says that it is repeatable.

| command | does |
|---|---|
"""


def page() -> str:
    """Return the page."""
    commands = list(_commands(get_command(app), "etdev"))
    rows = [f"| [`{name}`](#{name.replace(' ', '-')}) | {_summary(command)} |\n" for name, command in commands]
    sections = [_section(name, command) for name, command in commands]
    return "".join([_HEAD, *rows, *sections, _exit_codes()])


def _exit_codes() -> str:
    """Return the section on exit codes: the texts below the members of their class."""
    (table,) = [node for node in ast.parse(inspect.getsource(errors.ExitCode)).body if isinstance(node, ast.ClassDef)]
    rows = []
    for field, text in zip(table.body, table.body[1:], strict=False):
        if isinstance(field, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            name = ast.unparse(field.targets[0])
            meaning = " ".join(str(text.value.value).split()).replace("``", "`")
            rows.append(f"| {int(errors.ExitCode[name])} | `{name}` | {meaning} |\n")
    assert len(rows) == len(errors.ExitCode)
    return (
        "\n## Exit codes\n\nThe names are those of `etdev.errors.ExitCode`. A number never changes its meaning. [ci.md]"
        f"(ci.md#exit-codes) says more.\n\n| code | name | meaning |\n|---|---|---|\n{''.join(rows)}"
    )


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Return the command, or what it contains, each with its full name."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for part in command.list_commands(None):
        yield from _commands(command.get_command(None, part), f"{name} {part}")


def _summary(command: Any) -> str:
    return _cell(_help(command).partition("\n\n")[0])


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "")


def _section(name: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    options = [parameter for parameter in shown if parameter.param_type_name == "option" and parameter.name != "help"]
    words = [name, *(["[OPTIONS]"] if options else []), *(_usage(parameter) for parameter in arguments)]
    parts = [f"\n## {name}\n", f"    {' '.join(words)}\n", _prose(_help(command))]
    if arguments or options:
        rows = [
            f"| `{_argument(found).replace('|', chr(92) + '|')}` | {_cell(found.help or '')} |\n" for found in arguments
        ]
        rows += [f"| {_names(found)} | {_cell(found.help or '')}{_default(found)} |\n" for found in options]
        parts.append("| argument or option | meaning |\n|---|---|\n" + "".join(rows))
    return "\n".join(parts)


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.human_readable_name)


def _usage(parameter: Any) -> str:
    name = _argument(parameter)
    return (
        f"{name if parameter.required or name.startswith('[') else f'[{name}]'}{'...' if parameter.nargs == -1 else ''}"
    )


def _names(parameter: Any) -> str:
    """Return the names of an option with the name of its value."""
    value = "" if parameter.is_flag or parameter.count else f" {parameter.metavar or 'VALUE'}".replace("|", "\\|")
    names = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{name}{value if name == names[-1] else ''}`" for name in names)


def _default(parameter: Any) -> str:
    default = parameter.default
    if not parameter.show_default or default in (None, False, (), []) or callable(default):
        return ""
    return f" Default: `{default}`."


def _prose(text: str) -> str:
    """Return help as Markdown: names of options and files as code."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(_code(part) for part in paragraphs) + "\n"


def _cell(text: str) -> str:
    return _code(" ".join(text.split())).replace("|", "\\|")


def _code(text: str) -> str:
    """Return text with options such as ``--output`` and names such as ``NAME.pte`` as code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _NAME.sub(r"`\1`", part) for part in parts)
