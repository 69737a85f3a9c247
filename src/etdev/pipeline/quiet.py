"""Keeping what libraries print out of the way: stdout belongs to results, warnings to those who ask for them."""

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
    """Send prints to stderr; unless ``verbose``, hide Python warnings and log messages below ERROR.

    torch, torchao and executorch warn on every start about what no user of etdev can change, through handlers that they
    install while they are imported, so the level is set for all loggers.
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
def held_back() -> Iterator[None]:
    """Keep what torch prints about a failure (the graph so far) for its traceback; what it logs is that traceback."""
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
    """Python's ``sys.stdout``, and the process's own: C++ libraries and programs that user code starts write to it."""
    _flush()
    ours = None
    with suppress(OSError):  # There may be no such stream.
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
    """Write out what Python and C hold back for standard output, so that it goes where it was meant to go."""
    if sys.__stdout__ is not None:
        with suppress(OSError, ValueError):
            sys.__stdout__.flush()
    ctypes.CDLL(None).fflush(None)
