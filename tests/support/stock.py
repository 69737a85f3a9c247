"""Processes of the stock runtime that several tests use: each takes seconds to start."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

import pytest

from etdev.runtime.stock import StockRuntime

_PROCESS = ("_child", "_greeted", "_operators", "_backends", "_usable")
"""Attributes of a runtime that belong to its process."""
_MOST = 2
"""Most processes that wait for the next runtime."""


@cache
def shared_runtime() -> StockRuntime:
    """Started at the first use, ended with the tests. Not for tests that crash it."""
    runtime = StockRuntime()
    runtime.__enter__()
    atexit.register(runtime.__exit__, None, None, None)
    return runtime


class SpareProcesses:
    """Processes that a runtime left in order, for the next one."""

    def __init__(self) -> None:
        self._spare: list[dict[str, Any]] = []

    def close(self) -> None:
        """End them."""
        for found in self._spare:
            found["_child"].close()

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let runtimes without modules of their own take a spare process, and leave theirs."""
        begin, end = StockRuntime.__enter__, StockRuntime.__exit__

        def enter(runtime: StockRuntime) -> StockRuntime:
            if runtime._imports or not self._spare:
                return begin(runtime)
            limit = runtime.limit
            vars(runtime).update(self._spare.pop())
            runtime.limit = limit
            return runtime

        def leave(runtime: StockRuntime, *error: object) -> None:
            process = runtime._child._process
            in_order = process is not None and process.poll() is None and runtime._greeted and not any(error)
            if runtime._imports or not in_order or len(self._spare) == _MOST:
                end(runtime, *error)
                return
            self._spare.append({name: getattr(runtime, name) for name in _PROCESS})
            runtime._joined.close()

        monkeypatch.setattr(StockRuntime, "__enter__", enter)
        monkeypatch.setattr(StockRuntime, "__exit__", leave)
