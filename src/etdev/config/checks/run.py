"""Checks of the keys that say where targets are built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.checks.raw import is_settled, table_at
from etdev.config.issues import CONFLICT, Issue


def check_run(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check that ``ray_address`` is set only for the executor ``ray``."""
    run = table_at(data, "run")
    local = run["executor"] == "local" if "executor" in run else is_settled(run, "executor")
    if local and run.get("ray_address"):
        message = '`run.ray_address` has no effect unless `run.executor` is "ray"'
        yield Issue(("run", "ray_address"), message, CONFLICT, "remove it, or add the executor")
