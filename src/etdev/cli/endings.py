"""Endings of a command that fails: the printed message and the exit code.

There are five kinds: an expected error, an interrupt, an output pipe without a reader, a full or failing disk, and a
bug.
"""

from __future__ import annotations

import atexit
import errno
import os
import platform
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import typer

from etdev._version import __version__
from etdev.cli.rendering.output import note, print_error
from etdev.errors import ConfigError, EtdevError, ExitCode, TargetsError
from etdev.files import describe_os_error

# Since 0.26, typer contains its own copy of click; earlier versions use the installed click. This finds the base
# exception of the right click.
_ClickException: type[BaseException] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

_STDOUT, _STDERR = 1, 2

_AT_WRITES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Errors that can occur at any write, and whose cause is never a bug."""
_AT_ACCESS = frozenset({errno.EIO, errno.EACCES})
"""Errors that can occur at any access to a file, and whose cause is never a bug."""


def report(error: BaseException, *, debug: bool) -> int:
    """Print on stderr the error that ended the command, and return the exit code.

    With ``debug``, also print the traceback, except for wrong usage, an invalid config and an interrupt. If an
    exception in other code caused an expected error, print only the traceback of that exception. etdev's own frames
    would not help a user.
    """
    if isinstance(error, SystemExit):  # typer ends `--show-completion` like this.
        return error.code if isinstance(error.code, int) else ExitCode.DONE
    if isinstance(error, BrokenPipeError):  # The output has no reader: print nothing, and do not end with success.
        return ExitCode.INTERRUPTED
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        with suppress(OSError):  # The terminal may be closed.
            print_error("interrupted", label="")
        return ExitCode.INTERRUPTED
    if isinstance(error, _ClickException):
        return _report_usage(error)
    if isinstance(error, ConfigError):
        return _report_config(error)
    if isinstance(error, TargetsError):
        return _report_targets(error, debug=debug)
    if debug:
        _print_trace(error)
    if isinstance(error, EtdevError):
        print_error(error.message, where=error.where, hint=error.hint)
        return error.exit_code
    if isinstance(error, OSError) and error.errno in _AT_WRITES | _AT_ACCESS:
        cause, remedy = describe_os_error(error)
        action = "write" if error.errno in _AT_WRITES else "read or write"
        where = os.fspath(error.filename or "standard output")
        print_error(f"cannot {action}: {cause}", where=where, hint=remedy)
        return ExitCode.BUILD_FAILED
    return _report_bug(error, shown=debug)


def _print_trace(error: BaseException) -> None:
    shown: BaseException | None = error
    while isinstance(shown, EtdevError) and not _debugs_etdev():
        shown = shown.__cause__
    if shown is not None:
        traceback.print_exception(shown, file=sys.stderr)


def _debugs_etdev() -> bool:
    return os.environ.get("ETDEV_DEBUG", "") not in ("", "0")


def _report_config(error: ConfigError) -> int:
    for problem in error.problems:
        print_error(problem.message, where=problem.where, hint=problem.hint)
    return error.exit_code


def _report_targets(error: TargetsError, *, debug: bool) -> int:
    """Print each different error once, with the names of all targets that failed with this error."""
    owners: dict[tuple[str, str | None, str | None], list[str]] = {}
    for name, own in error.errors.items():
        if debug:
            _print_trace(own)
        for one in own.problems if isinstance(own, ConfigError) else (own,):
            owners.setdefault((one.message, one.where, one.hint), []).append(repr(name))
    for (message, where, hint), names in owners.items():
        print_error(f"target{'s' * (len(names) != 1)} {', '.join(names)}: {message}", where=where, hint=hint)
    note(error.hint or "")
    return error.exit_code


def _report_usage(error: BaseException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "etdev"
    print_error(error.format_message(), hint=f"run `{path} --help` to see the valid arguments")  # type: ignore[attr-defined]
    return ExitCode.CONFIG


def _report_bug(error: BaseException, *, shown: bool) -> int:
    last = traceback.format_exception_only(error)[-1].strip()
    print_error(f"internal error: {last}", label="etdev")
    system = f"etdev {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    place = "above" if shown else _write_traceback(error)
    print_error(
        f"This is a bug in etdev ({system}), not a mistake of yours.\nPlease report it with the command line and "
        f"the traceback {place}.",
        label="",
    )
    return ExitCode.BUG


def _write_traceback(error: BaseException) -> str:
    try:
        descriptor, name = tempfile.mkstemp(prefix="etdev-traceback-", suffix=".txt")
        with os.fdopen(descriptor, "w") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return "that `ETDEV_DEBUG=1` shows"
    return f"in {name}"


def wants_traceback(arguments: Sequence[str]) -> bool:
    """Return True if the user asked for tracebacks: ``-v`` anywhere on the command line, or ``ETDEV_DEBUG`` set."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return _debugs_etdev() or not {"-v", "-vv", "--verbose"}.isdisjoint(options)


def close_streams(code: int) -> int:
    """Flush stdout and stderr, and return the exit code.

    A stream without a reader is replaced, so that the interpreter does not print an error about it.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return int(code)


def divert_stdout() -> None:
    """Redirect stdout to stderr at the end of the process.

    Otherwise, text that user code prints while the interpreter exits would follow the result on stdout.
    """
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        os.dup2(_STDERR, _STDOUT)


def leave_at_once(code: int) -> NoReturn:
    """End the process like :func:`sys.exit`, but without unloading the imported modules.

    With torch, unloading takes seconds after the results are complete.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # Waits for other threads.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
