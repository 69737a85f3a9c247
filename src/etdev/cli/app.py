"""The command ``etdev``: the list of subcommands, and the conversion of errors to exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import typer
from typer.main import get_command

from etdev._version import __version__
from etdev.cli import endings
from etdev.cli.interrupts import INTERRUPTS
from etdev.cli.lazy import CONTEXT_SETTINGS, Entry, Group, LazyGroup
from etdev.cli.rendering.display import DISPLAY
from etdev.errors import ExitCode


class Commands(LazyGroup):
    """All commands, in the order in which users of a new project need them."""

    entries: ClassVar = {
        "init": Entry("Write a new project from a template.", "etdev.cli.init:init"),
        "validate": Entry("Check a config without running any of its code.", "etdev.cli.validate:validate"),
        "build": Entry("Build the config's targets and verify them.", "etdev.cli.build:build"),
        "verify": Entry("Verify built targets, or any .pte files.", "etdev.cli.verify:verify"),
        "run": Entry("Call a method of a .pte, and show its outputs.", "etdev.cli.run:run"),
        "bench": Entry("Measure a .pte: latency, throughput of workers, memory.", "etdev.cli.bench:bench"),
        "deploy": Entry("Deploy a built target, or roll back.", "etdev.cli.deploy:deploy"),
        "inspect": Entry("Show the methods, memory, operators and delegates of a .pte.", "etdev.cli.inspect:inspect"),
        "report": Entry("Write an HTML page about a .pte: memory map, peak, sizes, checks.", "etdev.cli.report:report"),
        "runner": Entry("Write a C++ project that runs a .pte in static memory.", "etdev.cli.runner:runner"),
        "diff": Entry("Compare two .pte programs.", "etdev.cli.diff:diff"),
        "relink": Entry("Plan the memory of any .pte again, to reduce it.", "etdev.cli.relink:relink"),
        "config": Group(
            "Show the effective config, or explain its keys.",
            {
                "show": Entry("Print the effective config and the origin of its values.", "etdev.cli.config:show"),
                "explain": Entry("Explain a key and the origin of its value.", "etdev.cli.config:explain"),
            },
        ),
        "cache": Group(
            "Show, clean or explain the build cache.",
            {
                "stats": Entry("Show the folder, contents and size of the cache.", "etdev.cli.cache:stats"),
                "gc": Entry("Remove the least recently used entries from the cache.", "etdev.cli.cache:gc"),
                "why": Entry("Explain why a target would be built again.", "etdev.cli.cache:why"),
            },
        ),
        "schema": Entry("Print the JSON Schema of the config file, for editors.", "etdev.cli.schema:schema"),
        "doctor": Entry(
            "Show the versions and backends that work on this machine, and what to install.", "etdev.cli.doctor:doctor"
        ),
    }


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
    epilog="Exit codes: 0 done, 1 a gate failed, 2 usage or config, 3 environment, 4 build failed or rejected, "
    "5 lock stale, 6 deployment failed, 70 a bug in etdev, 130 interrupted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"etdev {__version__}")
        raise typer.Exit


@app.callback(help="The build tool and linker for ExecuTorch programs.")
def root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Print the version."),
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), file=sys.stderr)
        raise typer.Exit(ExitCode.CONFIG)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; never raises an error, and prints a traceback only on request."""
    with INTERRUPTS:  # The block includes the end of the command, so that a signal cannot interrupt the last output.
        try:
            code = _dispatch(arguments)
            sys.stdout.flush()
        except BaseException as error:  # noqa: BLE001 - the single catch point
            ending = KeyboardInterrupt() if INTERRUPTS.seen else error
            DISPLAY.close()
            code = endings.report(ending, debug=endings.wants_traceback(arguments))
        DISPLAY.close()
        return endings.close_streams(code)


def _dispatch(arguments: Sequence[str]) -> int:
    command: Any = get_command(app)
    try:
        code = command.main(args=list(arguments), prog_name="etdev", standalone_mode=False)
    except SystemExit as error:
        # Shell completion ends with SystemExit. So does a command with a broken pipe that typer caught.
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    if code == ExitCode.INTERRUPTED:  # typer converts a KeyboardInterrupt to this code.
        raise KeyboardInterrupt
    return int(code or 0)
