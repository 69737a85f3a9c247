"""One stock runtime for the whole test run: its process takes seconds to start."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache

from etdev.pipeline.project import Project
from etdev.runtime.stock import StockRuntime


@cache
def shared_runtime() -> StockRuntime:
    """Started at the first use, ended with the tests. Not for tests that crash it."""
    runtime = StockRuntime()
    runtime.__enter__()
    atexit.register(runtime.__exit__, None, None, None)
    return runtime


def share_runtime() -> Callable[[Project], AbstractContextManager[StockRuntime]]:
    """Takes the place of ``etdev.pipeline.project.options.runtime_for`` in tests that build many times."""
    return lambda project: nullcontext(shared_runtime())
