"""A command group that imports a command only when the command is called.

This lets ``etdev --help`` start quickly. If the file of one command is broken or needs a missing package, the other
commands still work. Therefore, the group is a table of names, summaries and ``module:function`` texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from etdev.errors import UsageError

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: the function at ``module:function`` takes typer parameters and returns an exit code."""

    summary: str
    """Description of the command, in one line, for the list of commands."""
    target: str


@dataclass(frozen=True, slots=True)
class Group:
    """A command with subcommands."""

    summary: str
    entries: Mapping[str, Entry | Group]


class LazyGroup(TyperGroup):
    """A typer group whose commands are in a table, which subclasses define."""

    entries: ClassVar[Mapping[str, Entry | Group]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # typer uses the keys of this dictionary to suggest a name for a misspelled command.
        self.commands: dict[str, Any] = dict.fromkeys(self.entries)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.entries.get(cmd_name)
        return None if entry is None else load(cmd_name, entry)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])


class Command(TyperCommand):
    """A typer command that refuses a second value for an option with one value. typer would use the last value."""

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)
        for option in {*parser._long_opt.values(), *parser._short_opt.values()}:
            if option.action == "store" and not ctx.resilient_parsing:  # Shell completion reads unfinished lines.
                _refuse_second_value(option)
        return parser


def _refuse_second_value(option: Any) -> None:
    """Let the parser raise :class:`~etdev.errors.UsageError` when it meets a second value for this option."""
    process = option.process

    def process_once(value: Any, state: Any) -> None:
        if option.dest in state.opts:
            name = max(option.obj.opts, key=len)
            first, second = (repr(str(item)) for item in (state.opts[option.dest], value))
            message = f"this option takes one value, and the command line has two: {first} and {second}"
            raise UsageError(message, where=name, hint=_ONE_VALUE.get(name, "remove one of them"))
        process(value, state)

    option.process = process_once


_ONE_VALUE = {
    "--method": "call each method with a command of its own. To call several methods on the same state, list the calls "
    "in `verify.sessions`, or use the `--call` of a project of `etdev runner`"
}
"""Maps an option to the hint of the error about a second value. For other options, the hint is to remove a value."""


def load(name: str, entry: Entry | Group) -> Any:
    """Import a command or group of the table, and return its command object."""
    if isinstance(entry, Group):
        app = _typer_app(name=name, cls=type("Commands", (LazyGroup,), {"entries": entry.entries}))
        app.callback(help=entry.summary)(_nothing)
    else:
        app = _typer_app()
        module, _, function = entry.target.partition(":")
        app.command(name, cls=Command)(getattr(import_module(module), function))
    return get_command(app)


def _typer_app(**settings: Any) -> typer.Typer:
    # Without rich's markup, help is plain text, the same in a pipe and on a terminal, and rich is not imported.
    return typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=CONTEXT_SETTINGS, **settings)


def _nothing() -> None:
    pass
