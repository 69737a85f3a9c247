"""Control of libraries' output: stdout is for results, and warnings are shown only on request."""

from __future__ import annotations

import ctypes
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress

_STDOUT, _STDERR = 1, 2


@contextmanager
def quiet_libraries(*, verbose: bool = False) -> Iterator[None]:
    """Send printed output to stderr. Unless ``verbose``, hide Python warnings and log messages below ERROR.

    torch, torchao and executorch always warn about things that users of etdev cannot change. These packages install
    their own log handlers during import, so the level is set for all loggers.
    """
    with _stdout_to_stderr(), warnings.catch_warnings():
        if verbose:
            yield
            return
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


@contextmanager
def without_logs(name: str) -> Iterator[None]:
    """During the block, drop all messages of the logger with this name, including errors."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def held_back() -> Iterator[None]:
    """Capture the output that torch prints in the block, and drop torch's log messages.

    If the block raises an exception, attach the printed text to the exception as a note. The text shows the graph up to
    the error. The log messages would only repeat the traceback.
    """
    printed, before = io.StringIO(), logging.root.manager.disable
    logging.disable(max(before, logging.ERROR))
    try:
        with redirect_stderr(printed):
            yield
    except Exception as error:
        error.add_note(printed.getvalue())
        raise
    finally:
        logging.disable(before)
    sys.stderr.write(printed.getvalue())


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirect the stdout of Python and of the process to stderr.

    C++ libraries and child processes write to the process's stdout.
    """
    _flush()
    ours = None
    with suppress(OSError):  # The process may have no stdout.
        ours = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _flush()
        if ours is not None:
            os.dup2(ours, _STDOUT)
            os.close(ours)


def _flush() -> None:
    """Flush Python's and C's buffers for stdout before stdout is redirected, or before the redirection ends."""
    if sys.__stdout__ is not None:
        with suppress(OSError, ValueError):
            sys.__stdout__.flush()
    ctypes.CDLL(None).fflush(None)
