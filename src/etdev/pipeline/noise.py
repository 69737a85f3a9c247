"""Keeping what libraries print out of the way: stdout belongs to results, warnings to those who ask for them."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def quiet_libraries(*, verbose: bool = False) -> Iterator[None]:
    """Send prints to stderr; unless ``verbose``, hide Python warnings and log messages below ERROR.

    torch, torchao and executorch warn on every start about what no user of etdev can change, through handlers that they
    install while they are imported, so the level is set for all loggers.
    """
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
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
